"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const narrow = () => window.innerWidth < 760;
  const number = new Intl.NumberFormat("en");
  const main = data.hasFrequency ? "frequency" : "mean";  // some mechanisms tell means alone
  const state = { frame: data.frames.length - 1, sort: main, descending: true, page: 0, shown: [] };
  const frame = () => data.frames[state.frame];

  // -- figures as people read them --------------------------------------------------------------------

  const smallish = (values) => {  // the tenth of a hundred: what the well-known keys are known to
    const known = values.filter((v) => v !== null && v > 0).sort((a, b) => a - b);
    return known.length ? known[Math.floor(known.length / 10)] : null;
  };
  const digitsFor = (error) => (error ? Math.max(0, Math.min(5, Math.ceil(-Math.log10(error)) + 1)) : 2);
  const digits = {
    frequency: digitsFor((smallish(frame().frequency_se) || 0.001) * 100),
    mean: data.hasMean ? digitsFor(smallish(frame().mean_se)) : 0,
  };
  const text = {
    frequency: (v) => (v === null ? "–" : (v * 100).toFixed(digits.frequency) + "%"),
    mean: (v) => (v === null ? "–" : v.toFixed(digits.mean).replace(/^-(0(\.0*)?)$/, "$1").replace("-", "−")),
  };
  const spread = data.further.map((name) => frame()[name].filter((v) => v !== null)).flat();
  digits.value = spread.length ? digitsFor((Math.max(...spread.slice(0, 5000)) - Math.min(...spread.slice(0, 5000))) / 50 || 1) : 0;
  text.value = (v) => (v === null ? "–" : v.toFixed(digits.value).replace(/^-(0(\.0*)?)$/, "$1").replace("-", "−"));
  const interval = (name, i) => {
    const low = frame()[name + "_low"][i], high = frame()[name + "_high"][i];
    return low === null || high === null ? "" : text[name](low) + " to " + text[name](high);
  };
  const flagsOf = (i) => data.flagNames.filter((_, bit) => (frame().flags[i] >> bit) & 1);

  // -- order ------------------------------------------------------------------------------------------

  const collator = new Intl.Collator("en", { numeric: true });
  const alphabetical = (() => {  // rank of each key, computed once: comparing texts is slow
    const order = data.keys.map((_, i) => i).sort((a, b) => collator.compare(data.keys[a], data.keys[b]));
    const rank = new Int32Array(order.length);
    order.forEach((key, place) => { rank[key] = place; });
    return rank;
  })();
  const labelRank = Object.fromEntries(Object.entries(data.labels).map(([name, texts]) => {
    const order = [...new Set(texts)].sort(collator.compare), rank = new Map(order.map((label, place) => [label, place]));
    return [name, texts.map((label) => rank.get(label))];
  }));
  const lowered = data.keys.map((key) => key.toLowerCase());
  const bits = (mask) => { let count = 0; for (; mask; mask &= mask - 1) count++; return count; };
  const value = (name, i) => {
    if (name === "key") return alphabetical[i];
    if (name === "flags") return bits(frame().flags[i]);
    if (name in data.labels) return labelRank[name][i];
    return frame()[name][i];
  };
  const ordered = (indices, name, descending) => indices.sort((a, b) => {
    const x = value(name, a), y = value(name, b);
    if (x === null || y === null) return (x === null) - (y === null) || alphabetical[a] - alphabetical[b];
    return (descending ? y - x : x - y) || alphabetical[a] - alphabetical[b];
  });
  const everyKey = () => data.keys.map((_, i) => i);
  const mostFrequent = (count) => ordered(everyKey(), main, true).filter((i) => frame()[main][i] !== null).slice(0, count);

  // -- charts -----------------------------------------------------------------------------------------

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const plain = (s) => s.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");  // Plotly reads tags
  const short = (s, most) => plain(s.length > most ? s.slice(0, most - 1) + "…" : s);
  const config = { displayModeBar: false, responsive: true };
  const reaches = (name, indices, of = frame()) => ({
    type: "data", symmetric: false,
    array: indices.map((i) => Math.max(0, of[name + "_high"][i] - of[name][i]) || 0),
    arrayminus: indices.map((i) => Math.max(0, of[name][i] - of[name + "_low"][i]) || 0),
  });
  const layout = (more) => {
    const axis = { gridcolor: colour("rule"), zerolinecolor: colour("line"), linecolor: colour("line"), automargin: true, fixedrange: narrow() };
    const { xaxis, yaxis, ...rest } = more;
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 8, r: 16, t: 8, b: 40 },
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow() ? 12 : 13, color: colour("ink") },
      hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("line"), font: { color: colour("ink") } },
      showlegend: false, dragmode: narrow() ? false : "zoom",
      xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...rest,
    };
  };
  const hover = (i) => "<b>" + short(data.keys[i], 80) + "</b>" + (data.hasFrequency ? "<br>frequency " + text.frequency(frame().frequency[i]) + " (" + interval("frequency", i) + ")" : "")
    + (data.hasMean ? "<br>mean " + text.mean(frame().mean[i]) + (interval("mean", i) ? " (" + interval("mean", i) + ")" : "") : "")
    + (frame().flags[i] ? "<br>flags: " + plain(flagsOf(i).join(", ")) : "");
  const sayKey = (i) => data.keys[i] + " at " + text[main](frame()[main][i]);

  function drawBars() {
    const indices = mostFrequent(Number(byId("bars-count").value));
    const error = reaches(main, indices), ofMeans = main === "mean";
    Plotly.react("bars", [{
      type: "bar", orientation: "h", x: indices.map((i) => frame()[main][i]), y: indices.map((_, row) => row),
      error_x: { ...error, color: colour("error"), thickness: 1.4, width: 3 },
      marker: { color: indices.map((i) => (frame().flags[i] ? colour("pale") : colour("bar"))) },
      hovertext: indices.map(hover), hoverinfo: "text",
    }], layout({
      height: Math.max(150, 56 + indices.length * (narrow() ? 24 : 26)), bargap: 0.35, dragmode: false,
      xaxis: {
        tickformat: ofMeans ? "" : ".0%", rangemode: "tozero", fixedrange: true, nticks: narrow() ? 5 : 9,
        title: { text: ofMeans ? "estimated mean" : "estimated share of the people", font: { size: 12 } },
      },
      yaxis: {
        autorange: "reversed", fixedrange: true, gridcolor: "rgba(0,0,0,0)", ticklabelstandoff: 8, tickvals: indices.map((_, row) => row),
        ticktext: indices.map((i) => short(data.keys[i], narrow() ? 16 : 40)),
      },
    }), config);
    byId("bars-words").textContent = indices.length
      ? "In words: " + indices.slice(0, 3).map(sayKey).join("; ") + (indices.length > 3 ? "; the others follow in the table below." : ".")
      : "There is no key with an estimate.";
  }

  function drawScatter() {
    if (!data.hasMean || main === "mean") return;
    const indices = mostFrequent(Number(byId("scatter-count").value)).filter((i) => frame().mean[i] !== null);
    const faint = indices.length > 60 ? 0.3 : 0.6;
    const line = { color: colour("accent"), thickness: 1, width: 0 };
    const flagged = indices.map((i) => frame().flags[i] !== 0);
    Plotly.react("scatter", [{
      type: "scatter", mode: "markers", x: indices.map((i) => frame().frequency[i]), y: indices.map((i) => frame().mean[i]),
      error_x: { ...reaches("frequency", indices), ...line }, error_y: { ...reaches("mean", indices), ...line }, opacity: 1,
      marker: {
        size: 8, color: flagged.map((f) => (f ? colour("panel") : colour("accent"))), line: { color: colour("accent"), width: 1.5 },
      },
      hovertext: indices.map(hover), hoverinfo: "text",
    }], layout({
      height: narrow() ? 360 : 480, margin: { l: 8, r: 16, t: 8, b: 48 },
      xaxis: { tickformat: ".0%", title: { text: "estimated share of the people", font: { size: 12 } }, nticks: narrow() ? 5 : 10 },
      yaxis: { title: { text: "mean among those who hold the key", font: { size: 12 } } },
    }), config).then((chart) => {  // many crossing lines hide the points: let them step back
      chart.querySelectorAll(".errorbars path").forEach((path) => { path.style.opacity = faint; });
    });
    byId("scatter-words").textContent = indices.length ? "" : "No key has an estimated mean.";
    byId("scatter").hidden = !indices.length;
  }

  function drawSpread() {
    const percentiles = data.further.filter((name) => name + "_low" in frame());
    if (!percentiles.length) return;
    const middle = percentiles.reduce((best, name) => (Math.abs(name.slice(1) - 50) < Math.abs(best.slice(1) - 50) ? name : best));
    const first = percentiles[0], last = percentiles[percentiles.length - 1];
    const indices = mostFrequent(Number(byId("spread-count").value)).filter((i) => frame()[middle][i] !== null);
    const rows = indices.map((_, row) => row), at = (name) => indices.map((i) => frame()[name][i]);
    const reach = (from, to) => ({
      type: "data", symmetric: false, width: 0,
      array: indices.map((i) => Math.max(0, frame()[to][i] - frame()[middle][i]) || 0),
      arrayminus: indices.map((i) => Math.max(0, frame()[middle][i] - frame()[from][i]) || 0),
    });
    const hovertext = indices.map((i) => "<b>" + short(data.keys[i], 80) + "</b>" + data.further.map((name) => "<br>" + titleOf(name).toLowerCase() + " " + text.value(frame()[name][i])).join(""));
    const trace = { type: "scatter", mode: "markers", x: at(middle), y: rows, hovertext, hoverinfo: "text" };
    Plotly.react("spread", [
      ...(data.further.includes("minimum") ? [{ ...trace, marker: { size: 1, color: colour("error") }, error_x: { ...reach("minimum", "maximum"), color: colour("error"), thickness: 1.4 } }] : []),
      { ...trace, marker: { size: 11, color: colour("panel"), line: { color: colour("accent"), width: 2 } }, error_x: { ...reach(first, last), color: colour("bar"), thickness: narrow() ? 7 : 9 } },
    ], layout({
      height: Math.max(150, 56 + indices.length * (narrow() ? 24 : 26)), dragmode: false,
      xaxis: { fixedrange: true, nticks: narrow() ? 5 : 9, title: { text: "value", font: { size: 12 } } },
      yaxis: { autorange: "reversed", fixedrange: true, gridcolor: "rgba(0,0,0,0)", zeroline: false, tickvals: rows, ticktext: indices.map((i) => short(data.keys[i], narrow() ? 16 : 40)) },
    }), config);
    byId("spread-words").textContent = indices.length ? "In words: " + indices.slice(0, 3).map((i) => data.keys[i] + ", " + titleOf(middle).toLowerCase() + " " + text.value(frame()[middle][i])).join("; ") + "." : "No key has an estimate.";
    byId("spread-note").textContent = "The ring is the " + titleOf(middle).toLowerCase() + ", the thick line reaches from the " + titleOf(first).toLowerCase() + " to the " + titleOf(last).toLowerCase()
      + (data.further.includes("minimum") ? ", the thin one to the extremes that the noise lets one see." : ".");
  }

  function drawTime() {
    if (data.windows.length < 2 || main === "mean") return;
    const last = data.frames[data.frames.length - 1];
    const indices = everyKey().filter((i) => last.frequency[i] !== null)
      .sort((a, b) => last.frequency[b] - last.frequency[a]).slice(0, Number(byId("time-count").value));
    const palette = ["#4a86c5", "#d9822b", "#3b9b6d", "#c0528c", "#8a6fd1", "#7d8790", "#b3a125", "#2fa3b5", "#d1554a", "#5a7d2a", "#9c6b4e", "#5566cc"];
    const dashes = ["solid", "dash", "dot", "dashdot"];
    Plotly.react("time", indices.map((i, row) => ({
      type: "scatter", mode: "lines+markers", name: short(data.keys[i], 28), x: data.windows.map((w) => w.label),
      y: data.frames.map((f) => f.frequency[i]),
      error_y: {
        type: "data", symmetric: false, thickness: 1, width: 2,
        array: data.frames.map((f) => Math.max(0, f.frequency_high[i] - f.frequency[i]) || 0),
        arrayminus: data.frames.map((f) => Math.max(0, f.frequency[i] - f.frequency_low[i]) || 0),
      },
      line: { color: palette[row % 12], dash: dashes[Math.floor(row / 3) % 4] }, marker: { color: palette[row % 12], size: 6 },
      hovertemplate: "<b>" + short(data.keys[i], 60) + "</b><br>%{x}: %{y:." + digits.frequency + "%}<extra></extra>",
    })), layout({
      height: narrow() ? 420 : 440, showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, margin: { l: 8, r: 16, t: 44, b: 40 },
      yaxis: { tickformat: ".0%", rangemode: "tozero" }, xaxis: { type: "category" },
    }), config);
  }

  // -- table ------------------------------------------------------------------------------------------

  const titleOf = (name) => ({ minimum: "Minimum", maximum: "Maximum", p50: "Median" }[name] || name.slice(1) + "th percentile");
  const columns = [
    { name: "key", title: "Key" },
    ...Object.keys(data.labels).map((name) => ({ name, title: name[0].toUpperCase() + name.slice(1), label: true })),
    ...(data.hasFrequency ? [
      { name: "frequency", title: "Frequency", number: true },
      { name: "frequency_se", title: "± SE", number: true, error: true },
    ] : []),
    ...(data.hasMean ? [
      { name: "mean", title: "Mean", number: true },
      { name: "mean_se", title: "± SE", number: true, error: true },
    ] : []),
    ...data.further.map((name) => ({ name, title: titleOf(name), number: true, further: true })),
    { name: "flags", title: "Flags" },
  ];
  const spoken = { ...Object.fromEntries(columns.map((c) => [c.name, c.title.toLowerCase()])), key: "key", frequency: "frequency", frequency_se: "standard error of the frequency", mean: "mean", mean_se: "standard error of the mean", flags: "number of flags" };

  function element(tag, classes, content) {
    const made = document.createElement(tag);
    if (classes) made.className = classes;
    if (content !== undefined) made.textContent = content;
    return made;
  }

  function drawHead() {
    const row = element("tr");
    for (const column of columns) {
      const cell = element("th", [column.number && "number", column.error && "error", column.name === "flags" && "flags"].filter(Boolean).join(" "));
      cell.scope = "col";
      const active = state.sort === column.name;
      cell.setAttribute("aria-sort", active ? (state.descending ? "descending" : "ascending") : "none");
      const button = element("button", "", column.title);
      button.type = "button";
      button.dataset.sort = column.name;
      button.setAttribute("aria-label", column.title + ": sort by " + spoken[column.name]);
      const arrow = element("span", "arrow", active ? (state.descending ? " ▾" : " ▴") : "");
      arrow.setAttribute("aria-hidden", "true");
      button.append(arrow);
      button.addEventListener("click", () => sortBy(column));
      cell.append(button);
      row.append(cell);
    }
    byId("table").tHead.replaceChildren(row);
  }

  function sortBy(column) {
    const repeated = state.sort === column.name;
    state.descending = repeated ? !state.descending : Boolean(column.number) && !column.error;
    state.sort = column.name;
    state.page = 0;
    drawHead();
    ordered(state.shown, state.sort, state.descending);
    drawRows();
    byId("table").tHead.querySelector('[data-sort="' + column.name + '"]').focus();
  }

  function estimateCell(name, i) {
    const cell = element("td", "number", text[name](frame()[name][i]));
    const bounds = interval(name, i);
    if (bounds) cell.append(" ", element("span", "interval", bounds));
    return cell;
  }

  function furtherCell(name, i) {
    const low = frame()[name + "_low"][i], high = frame()[name + "_high"][i];
    const cell = element("td", "number", text.value(frame()[name][i]));
    if (low !== null && high !== null) cell.append(" ", element("span", "interval", text.value(low) + " to " + text.value(high)));
    return cell;
  }

  function drawRows() {
    const perPage = Number(byId("rows").value), pages = Math.max(1, Math.ceil(state.shown.length / perPage));
    state.page = Math.max(0, Math.min(state.page, pages - 1));
    const start = state.page * perPage, part = state.shown.slice(start, start + perPage);
    byId("table").tBodies[0].replaceChildren(...part.map((i) => {
      const row = element("tr"), head = element("th", "", data.keys[i] === "" ? "(empty text)" : data.keys[i]);
      head.scope = "row";
      row.append(head);
      for (const name in data.labels) row.append(element("td", "", data.labels[name][i]));
      if (data.hasFrequency) row.append(estimateCell("frequency", i), element("td", "number error", text.frequency(frame().frequency_se[i])));
      if (data.hasMean) row.append(estimateCell("mean", i), element("td", "number error", text.mean(frame().mean_se[i])));
      for (const name of data.further) row.append(name + "_low" in frame() ? furtherCell(name, i) : element("td", "number", text.value(frame()[name][i])));
      const flags = element("td", "flags");
      flagsOf(i).forEach((flag) => flags.append(element("span", "flag", flag)));
      row.append(flags);
      return row;
    }));
    const found = number.format(state.shown.length), all = number.format(data.keys.length);
    byId("status").textContent = state.shown.length
      ? "Keys " + number.format(start + 1) + " to " + number.format(start + part.length) + " of " + found + (found === all ? "" : " found among " + all) + "."
      : "No key of " + all + " fits.";
    byId("page").textContent = "Page " + number.format(state.page + 1) + " of " + number.format(pages);
    byId("first").disabled = byId("previous").disabled = state.page === 0;
    byId("last").disabled = byId("next").disabled = state.page >= pages - 1;
  }

  function select() {
    const wanted = byId("search").value.trim().toLowerCase(), clean = byId("unflagged").checked;
    state.shown = everyKey().filter((i) => (!wanted || lowered[i].includes(wanted)) && (!clean || !frame().flags[i]));
    ordered(state.shown, state.sort, state.descending);
    state.page = 0;
    drawRows();
  }

  function download() {
    const names = Object.keys(frame()).filter((name) => name !== "flags");
    const quote = (v) => (v === null ? "" : /[",\n\r]/.test(String(v)) ? '"' + String(v).replace(/"/g, '""') + '"' : String(v));
    const lines = [["key", ...names, "flags"].join(",")];
    for (const i of state.shown) lines.push([data.keys[i], ...names.map((name) => frame()[name][i]), flagsOf(i).join(";")].map(quote).join(","));
    const link = element("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
    link.download = data.name + ".csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // -- controls ---------------------------------------------------------------------------------------

  function options(id, counts, preset, unit) {
    const field = byId(id), total = data.keys.length;
    const offered = counts.filter((count) => count < total);
    if (offered.length < counts.length) offered.push(total);
    for (const count of offered) {
      const option = element("option", "", (unit && count < total ? unit + " " : "") + (unit && count === total ? "all " : "") + number.format(count));
      option.value = count;
      field.append(option);
    }
    field.value = Math.max(...offered.filter((count) => count <= preset), offered[0]);
    if (preset >= total) field.value = total;
  }

  const themes = ["automatic", "light", "dark"];
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let theme = "automatic";
  try { theme = themes.includes(localStorage.getItem("ldp-beam-theme")) ? localStorage.getItem("ldp-beam-theme") : theme; } catch { /* no storage here */ }
  function paint() {
    document.documentElement.dataset.theme = theme === "automatic" ? (system.matches ? "dark" : "light") : theme;
    byId("theme").textContent = "Colours: " + theme;
  }
  const drawCharts = () => { drawBars(); drawSpread(); drawTime(); drawScatter(); };
  const later = (action, delay) => { let timer; return () => { clearTimeout(timer); timer = setTimeout(action, delay); }; };

  paint();
  byId("theme").hidden = false;
  byId("theme").addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { localStorage.setItem("ldp-beam-theme", theme); } catch { /* no storage here */ }
    paint();
    drawCharts();
  });
  system.addEventListener("change", () => { paint(); drawCharts(); });
  options("bars-count", [10, 25, 50, 100, 250], narrow() ? 10 : 25, "top");
  options("spread-count", [10, 25, 50, 100], narrow() ? 10 : 25, "top");
  options("scatter-count", [50, 100, 250, 1000], 100, "top");
  options("time-count", [3, 6, 12], 6, "top");
  options("rows", [10, 25, 50, 100, 250], narrow() ? 10 : 25, "");
  byId("spread-panel").hidden = !data.further.length;
  byId("scatter-panel").hidden = !data.hasMean || main === "mean";
  if (main === "mean") byId("bars-title").textContent = "Keys by their mean";
  byId("time-panel").hidden = data.windows.length < 2 || main === "mean";
  if (data.windows.length > 1) {
    byId("window-field").hidden = false;
    data.windows.forEach((w, place) => { const option = element("option", "", w.label); option.value = place; byId("window").append(option); });
    byId("window").value = state.frame;
    byId("window").addEventListener("change", () => { state.frame = Number(byId("window").value); drawBars(); drawSpread(); drawScatter(); select(); });
  }
  byId("bars-count").addEventListener("change", drawBars);
  byId("spread-count").addEventListener("change", drawSpread);
  byId("scatter-count").addEventListener("change", drawScatter);
  byId("time-count").addEventListener("change", drawTime);
  byId("search").addEventListener("input", later(select, 120));
  byId("unflagged").addEventListener("change", select);
  byId("rows").addEventListener("change", () => { state.page = 0; drawRows(); });
  byId("download").addEventListener("click", download);
  for (const [id, to] of [["first", () => 0], ["previous", () => state.page - 1], ["next", () => state.page + 1], ["last", () => Infinity]]) {
    byId(id).addEventListener("click", () => { state.page = to(); drawRows(); });
  }
  let wasNarrow = narrow();
  window.addEventListener("resize", later(() => { if (narrow() !== wasNarrow) { wasNarrow = narrow(); drawCharts(); } }, 200));
  drawHead();
  select();
  drawCharts();
  document.documentElement.dataset.ready = "yes";
})();
