"""A broker's listener with TLS and a login, for tests: its own authority, a certificate, two people with passwords."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from ldp_beam.engines import free_port
from ldp_beam.schemas.kafka_config import KafkaAddress

PLAIN = {"sasl.mechanisms": "PLAIN", "sasl.username": "ann", "sasl.password": "ann's long password"}
SCRAM = {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "bob", "sasl.password": "bob's long password"}
_LOGIN = "listener.name.sasl_ssl.{}.sasl.jaas.config"
_MODULE = "org.apache.kafka.common.security.{} required"


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(subject, key, issuer, signer, *, names=()):
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(_name(issuer), _name(subject), key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=not names, path_length=None), critical=True)
    if names:
        known = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        builder = builder.add_extension(known, critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM)


@dataclass(frozen=True)
class Secured:
    """What a broker needs for the listener, and what clients need to get in."""

    folder: Path
    port: int

    @classmethod
    def prepare(cls, folder):
        """Make the certificates: of an authority that has signed the broker's, and of another that has not."""
        folder.mkdir()
        authority, stranger, broker = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
        (folder / "authority.pem").write_bytes(_certificate("authority", authority, "authority", authority))
        (folder / "stranger.pem").write_bytes(_certificate("stranger", stranger, "stranger", stranger))
        own = _certificate("broker", broker, "authority", authority, names=["localhost"])
        key = broker.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / "broker.pem").write_bytes(key + own)
        return cls(folder, free_port())

    def listeners(self):
        return {"SASL_SSL": f"localhost:{self.port}"}

    def settings(self):
        plain, scram = _MODULE.format("plain.PlainLoginModule"), _MODULE.format("scram.ScramLoginModule")
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.folder / "broker.pem",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            _LOGIN.format("plain"): f'{plain} user_ann="{PLAIN["sasl.password"]}";',
            _LOGIN.format("scram-sha-512"): f"{scram};",
        }

    def add_people(self, plain_address):
        """Let Bob in, whose password the broker keeps itself."""
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        bob = UserScramCredentialUpsertion(SCRAM["sasl.username"], how, SCRAM["sasl.password"].encode())
        admin = AdminClient({"bootstrap.servers": plain_address})
        for future in admin.alter_user_scram_credentials([bob]).values():
            future.result(30)

    def topic(self, name):
        return KafkaAddress(f"localhost:{self.port}", name)

    def access(self, login=PLAIN, **changed):
        """Settings of a client; a change to None leaves one out."""
        names = {name.replace("_", "."): value for name, value in changed.items()}
        ours = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.folder / "authority.pem"),
            **login,
            **names,
        }
        return {name: value for name, value in ours.items() if value is not None}
