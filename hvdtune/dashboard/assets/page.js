// The theme lives on <html data-theme>; it is set here, before the first paint.
(function () {
  const key = "hvdtune-theme";
  const root = document.documentElement;
  let stored = null;
  try {
    stored = window.localStorage.getItem(key);
  } catch (error) {
    stored = null; // storage may be blocked; the system's preference decides then
  }
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = stored || (prefersDark ? "dark" : "light");

  // How cells of tables are written, see blocks.of_sizes and of_times.
  const functions = (window.dashAgGridFunctions = window.dashAgGridFunctions || {});
  functions.hvdtuneSize = function (bytes) {
    if (bytes === null || bytes === undefined) return "";
    for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
      if (bytes < size) continue;
      const units = bytes / size; // three digits, as hvdtune.plural.sized writes them
      return (units >= 100 ? Math.round(units) : Number(units.toPrecision(3))) + " " + unit;
    }
    return bytes + " B";
  };
  functions.hvdtuneRate = function (rate) { // in GB/s, as bandwidth.rated writes it
    if (rate === null || rate === undefined) return "";
    for (const [unit, size] of [["GB/s", 1], ["MB/s", 1e-3], ["kB/s", 1e-6]]) {
      if (rate >= size) return Number((rate / size).toPrecision(3)) + " " + unit;
    }
    return Number((rate * 1e9).toPrecision(3)) + " B/s";
  };
  functions.hvdtuneChange = function (percent) { // as compare.relative writes it
    if (percent === null || percent === undefined) return "";
    if (percent >= 900) return Number((1 + percent / 100).toPrecision(2)).toLocaleString("en") + "x";
    return percent.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
  };
  functions.hvdtuneMs = function (ms) {
    if (ms === null || ms === undefined) return "";
    if (ms === 0) return "0";
    const digits = Math.abs(ms) >= 100 ? 0 : Math.abs(ms) >= 10 ? 1 : Math.abs(ms) >= 1 ? 2 : 3;
    return ms.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  };

  // Buttons of figures, see blocks.drawn.
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-save]");
    if (!button) return;
    const drawing = button.closest("[role=figure]").querySelector(".js-plotly-plot");
    if (!drawing) return;
    const { width, height } = drawing.getBoundingClientRect();
    const format = button.dataset.save;
    // On a screen's background the picture's is transparent; on others it may be read on nothing.
    const layout = Object.assign({}, drawing.layout, {
      paper_bgcolor: getComputedStyle(root).getPropertyValue("--surface").trim(),
    });
    const figure = { data: drawing.data, layout, config: { displayModeBar: false } };
    window.Plotly.downloadImage(figure, { format, width, height, scale: 2, filename: "hvdtune" });
  });

  // The key to what is in the runs, from the printed link: see gate.py. It stays in this page's
  // storage, which no other server has, and leaves the address. Dashboards behind one proxy share
  // that storage, so each has the key under its own prefix.
  const prefix = JSON.parse(document.getElementById("_dash-config").textContent).requests_pathname_prefix;
  const kept = prefix === "/" ? "hvdtune-key" : "hvdtune-key " + prefix;
  let runsKey = new URLSearchParams(window.location.hash.slice(1)).get("key");
  try {
    if (runsKey) window.localStorage.setItem(kept, runsKey);
    else runsKey = window.localStorage.getItem(kept);
  } catch (error) {
    // Storage may be blocked; then the key is gone with the page.
  }
  if (window.location.hash.startsWith("#key=")) {
    const { pathname, search } = window.location;
    window.history.replaceState(window.history.state, "", pathname + search);
  }
  function withKey(options) {
    const headers = new Headers(options && options.headers);
    headers.set("X-Hvdtune-Key", runsKey || "");
    return Object.assign({}, options, { headers });
  }

  // What a page asks may fail because nobody is there any more: that is said, once, on top.
  const ask = window.fetch;
  function showRefusal(sentence) {
    document.body.textContent = sentence;
  }
  function tell(lost) {
    const alert = document.getElementById("unreachable");
    if (alert) alert.hidden = !lost;
  }
  window.fetch = function (place, options) {
    return ask.call(window, place, withKey(options)).then(
      (answer) => {
        tell(false);
        if (answer.status === 403) answer.clone().text().then(showRefusal);
        return answer;
      },
      (error) => {
        if (error.name !== "AbortError") tell(true);
        throw error;
      },
    );
  };

  function keep(values, query = new URLSearchParams(window.location.search)) {
    Object.entries(values).forEach(([key, value]) => query.set(key, value));
    window.history.replaceState(window.history.state, "", window.location.pathname + "?" + query);
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    hvdtune: {
      // Choices become part of the address, as those in the swimlane do.
      keep_tensor: function (rows) {
        if (rows && rows.length) keep({ tensor: rows[0].tensor });
        return "";
      },
      keep_sql: function (clicks, sql) {
        if (clicks && sql) keep({ sql });
        return "";
      },
      keep_pair: function (first, second) {
        if (!first || !second) return "";
        const query = new URLSearchParams(window.location.search);
        const is_same = (query.get("run") || "0") === first && (query.get("with") || second) === second;
        keep({ run: first, with: second }, is_same ? query : new URLSearchParams());
        return "";
      },
      switch_theme: function (clicks) {
        if (clicks) {
          root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
          try {
            window.localStorage.setItem(key, root.dataset.theme);
          } catch (error) {
            console.info("the theme is kept for this visit only");
          }
        }
        return [root.dataset.theme, root.dataset.theme];
      },
    },
  });
})();
