"use strict";
// What all parts of the page share: its data, its state, which is kept in the address, and elements made of text alone.
const read = (id) => JSON.parse(document.getElementById(id)?.textContent ?? "null");
const data = read("data") ?? {};
const state = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
const phone = matchMedia("(max-width: 40rem)");
const keep = (name, value) => {
  if (value === "" || value === null) {
    state.delete(name);
  } else {
    state.set(name, value);
  }
  try {
    history.replaceState(null, "", "#" + state);
  } catch {
    /* a frame without an address keeps nothing */
  }
};
const make = (tag, about = {}, ...children) => {
  const { dataset, style, ...rest } = about;
  const made = document.createElement(tag);
  Object.entries(rest).forEach(([name, value]) => {
    if (name.includes("-") || name === "role") {
      made.setAttribute(name, value);
    } else {
      made[name] = value;
    }
  });
  Object.assign(made.dataset, dataset);
  Object.assign(made.style, style);
  made.append(...children.filter((each) => each !== null && each !== ""));
  return made;
};
const percent = (part) => `${(100 * part).toPrecision(Math.abs(part) < 0.1 ? 2 : 3)} %`;
const download = (name, type, text) => {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
};
const typing = (event) =>
  event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=range]), select, textarea");
document.documentElement.classList.add("scripted");
// A link to a section keeps the view that the address has; another view is another page.
addEventListener("hashchange", () => {
  if (location.hash.includes("=")) {
    location.reload();
  } else if (state.size) {
    keep("section", location.hash.slice(1));
  }
});
const closed = [];
addEventListener("beforeprint", () => closed.push(...document.querySelectorAll("details:not([open])")));
addEventListener("beforeprint", () => closed.forEach((each) => (each.open = true)));
addEventListener("afterprint", () => closed.splice(0).forEach((each) => (each.open = false)));

// The counts at each eps are those of the file: nothing is interpolated.
const slider = document.getElementById("eps");
if (slider && data.curve) {
  const { eps: steps, directions, order } = data.curve;
  const told = document.getElementById("eps-counts");
  const show = () => {
    const place = Number(slider.value);
    slider.setAttribute("aria-valuetext", steps[place].toPrecision(3));
    const sides = order.map((name) => {
      const side = directions[name];
      return (
        `${name}: ${side.contributing[place].toFixed(2)} contribute, ` +
        `${(100 * side.idle[place]).toFixed(1)} % of the queries have none`
      );
    });
    told.textContent = `eps = ${steps[place].toPrecision(3)}. ${sides.join("; ")}`;
  };
  const asked = Number(state.get("eps"));
  if (asked > 0) {
    slider.value = steps.reduce(
      (best, value, place) =>
        Math.abs(Math.log(value / asked)) < Math.abs(Math.log(steps[best] / asked)) ? place : best,
      0,
    );
  }
  slider.addEventListener("input", () => {
    show();
    keep("eps", steps[Number(slider.value)]);
  });
  slider.form.hidden = false;
  slider.form.addEventListener("submit", (event) => event.preventDefault());
  show();
}

// Answers stay in this browser, and leave it as a list like that of `cocos audit --out`.
const suspects = [...document.querySelectorAll("[data-pair]")];
if (suspects.length) {
  const ANSWERS = [
    ["a", "yes", "1"],
    ["r", "no", "0"],
    ["u", "unsure", ""],
  ];
  const store = `cocos ${data.key}`;
  const answers = {};
  try {
    const kept = JSON.parse(localStorage.getItem(store)) ?? {};
    const pairs = suspects.map((row) => row.dataset.pair);
    pairs.filter((pair) => ANSWERS.some((each) => each[1] === kept[pair])).forEach((pair) => (answers[pair] = kept[pair]));
  } catch {
    /* a private window, or a frame, keeps nothing */
  }
  const told = document.getElementById("answered");
  const save = document.getElementById("export");
  const buttons = (row) => [...row.lastElementChild.children];
  const show = () => {
    suspects.forEach((row) =>
      buttons(row).forEach((each) => each.setAttribute("aria-pressed", answers[row.dataset.pair] === each.textContent)),
    );
    told.textContent =
      `${suspects.filter((row) => row.dataset.pair in answers).length} of ${suspects.length} answered. ` +
      "Keys on a pair: a yes, r no, u unsure, j and k the next and the previous one.";
  };
  const answer = (row, word) => {
    const pair = row.dataset.pair;
    if (answers[pair] === word) {
      delete answers[pair];
    } else {
      answers[pair] = word;
    }
    try {
      localStorage.setItem(store, JSON.stringify(answers));
    } catch {
      /* the answers last as long as the page */
    }
    show();
  };
  // One pair is in the order of the tab key at a time; j and k choose it.
  const choose = (row) =>
    suspects.forEach((each) => buttons(each).forEach((button) => (button.tabIndex = each === row ? 0 : -1)));
  const go = (row) => {
    if (row) {
      row.closest("details")?.setAttribute("open", "");
      row.lastElementChild.firstElementChild.focus();
    }
  };
  suspects.forEach((row, place) => {
    const [query, candidate] = row.cells;
    row.lastElementChild.setAttribute("role", "group");
    row.lastElementChild.setAttribute("aria-label", `${query.innerText} and ${candidate.innerText}`);
    ANSWERS.forEach(([key, word]) => {
      const button = make("button", { type: "button", textContent: word, "aria-keyshortcuts": key });
      button.addEventListener("click", () => answer(row, word));
      row.lastElementChild.append(button);
    });
    row.addEventListener("focusin", () => choose(row));
    row.addEventListener("click", (event) => event.target.closest("button") ?? go(row));
    row.addEventListener("keydown", (event) => {
      const found = ANSWERS.find(([key]) => key === event.key);
      const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key] ?? 0;
      if (typing(event) || (!found && !step)) {
        return;
      }
      event.preventDefault();
      event.stopPropagation();
      if (found) {
        answer(row, found[1]);
      }
      go(suspects[place + (step || (row.dataset.pair in answers ? 1 : 0))]);
    });
  });
  choose(suspects[0]);
  save.hidden = false;
  save.addEventListener("click", () => {
    const said = suspects.filter((row) => row.dataset.pair in answers).map((row) => row.dataset.pair);
    const lines = said.map((pair) => {
      const [, word, label] = ANSWERS.find((each) => each[1] === answers[pair]);
      return `${pair},${label},${word}`;
    });
    download("suspects.csv", "text/csv", ["query,candidate,label,answer", ...lines, ""].join("\n"));
  });
  show();
}
