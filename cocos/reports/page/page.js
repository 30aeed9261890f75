"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const state = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
const keep = () => history.replaceState(null, "", "#" + state);

// The counts at each eps are those of the file: nothing is interpolated.
const slider = document.getElementById("eps");
if (slider && data.curve) {
  const { eps, directions } = data.curve;
  const told = document.getElementById("eps-counts");
  const show = () => {
    const place = Number(slider.value);
    slider.setAttribute("aria-valuetext", eps[place].toPrecision(3));
    const sides = Object.entries(directions).map(([name, side]) =>
      `${name}: ${side.contributing[place].toFixed(2)} contribute, ${(100 * side.idle[place]).toFixed(1)} % of the queries have none`);
    told.textContent = `eps = ${eps[place].toPrecision(3)}. ${sides.join("; ")}`;
  };
  const asked = Number(state.get("eps"));
  if (asked > 0) {
    slider.value = eps.reduce((best, value, place) =>
      Math.abs(Math.log(value / asked)) < Math.abs(Math.log(eps[best] / asked)) ? place : best, 0);
  }
  slider.addEventListener("input", () => { show(); state.set("eps", eps[Number(slider.value)]); keep(); });
  slider.form.hidden = false;
  slider.form.addEventListener("submit", (event) => event.preventDefault());
  show();
}

// Answers stay in this browser, and leave it as the list that `cocos audit --labels` reads.
const rows = [...document.querySelectorAll("[data-pair]")];
if (rows.length) {
  const store = `cocos ${data.key}`;
  let answers = {};
  try { answers = JSON.parse(localStorage.getItem(store)) || {}; } catch { answers = {}; }
  const told = document.getElementById("answered"), save = document.getElementById("export");
  const count = () => { told.textContent = `${Object.keys(answers).length} of ${rows.length} answered`; };
  rows.forEach((row) => {
    const pair = row.dataset.pair, cell = row.lastElementChild;
    [["1", "yes"], ["0", "no"]].forEach(([label, word]) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = word;
      button.setAttribute("aria-pressed", answers[pair] === label);
      button.addEventListener("click", () => {
        if (answers[pair] === label) { delete answers[pair]; } else { answers[pair] = label; }
        [...cell.children].forEach((each) =>
          each.setAttribute("aria-pressed", answers[pair] === (each.textContent === "yes" ? "1" : "0")));
        try { localStorage.setItem(store, JSON.stringify(answers)); } catch { /* private windows keep nothing */ }
        count();
      });
      cell.append(button, " ");
    });
  });
  save.hidden = false;
  save.addEventListener("click", () => {
    const lines = Object.entries(answers).map(([pair, label]) => `${pair},${label}`);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([["query,candidate,label", ...lines, ""].join("\n")], { type: "text/csv" }));
    link.download = "suspects.csv";
    link.click();
    URL.revokeObjectURL(link.href);
  });
  count();
}
