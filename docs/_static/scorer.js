// How results of the search are ordered: the defaults of Sphinx; pages that teach come first, and pages that mention
// everything, or whose titles are whole sentences, last.
const OFFSETS = [
  [/^glossary$/, 3],
  [/^(howto\/|faq$|concepts$|start$)/, 2],
  [/^notebooks\//, -1],
  [/^gallery\//, -8],
  [/^(changelog|commands|contributing|architecture|genindex|papers)$/, -12],
];
var Scorer = {
  score: ([docname, title, anchor, descr, score]) =>
    OFFSETS.reduce((sum, [pages, offset]) => sum + (pages.test(docname) ? offset : 0), score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
