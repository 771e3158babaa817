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

  // Buttons of tables, see blocks.grid.
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-table]");
    if (!button) return;
    const table = window.dash_ag_grid.getApi(button.dataset.table);
    table.exportDataAsCsv({ fileName: button.dataset.file });
  });

  // What a page asks may fail because nobody is there any more: that is said, once, on top.
  const ask = window.fetch;
  function tell(lost) {
    const alert = document.getElementById("unreachable");
    if (alert) alert.hidden = !lost;
  }
  window.fetch = function (...asked) {
    return ask.apply(window, asked).then(
      (answer) => {
        tell(false);
        return answer;
      },
      (error) => {
        if (error.name !== "AbortError") tell(true);
        throw error;
      },
    );
  };

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    hvdtune: {
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
