// How results of the search are ordered: the defaults of Sphinx, with pages that mention everything at the end.
var Scorer = {
  score: ([docname, title, anchor, descr, score]) =>
    score - (/^(changelog|commands|contributing|architecture|preregistration|genindex|papers)$/.test(docname) ? 12 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
