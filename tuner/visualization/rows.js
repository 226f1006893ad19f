"use strict";

// How tables are sorted and filtered: those of the report, and those of the live pages.

const isMissing = (value) => value === "" || Number.isNaN(value);

// The order of two values; what is missing comes last, whatever the sign, and numbers come before words.
function compareValues(a, b, sign) {
  if (isMissing(a) || isMissing(b)) return isMissing(a) - isMissing(b);
  if (a === b) return 0;
  if (typeof a !== typeof b) return sign * (typeof a === "number" ? -1 : 1);
  return sign * (a < b ? -1 : 1);
}

const TESTS = {
  "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b,
  "=": (a, b) => a === b, "!=": (a, b) => a !== b,
};

// One word of a filter: `lr<0.01`, `status=stopped`, or a text that some cell of the row holds.
function condition(word, names, valueAt, textOf) {
  const [, name, operator, value] = word.match(/^(.*?)(<=|>=|!=|<|>|=)(.+)$/) ?? [];
  const column = names.indexOf(name);
  if (column < 0) return (row) => textOf(row).toLowerCase().includes(word);
  return (row) => {
    const found = valueAt(row, column);
    if (isMissing(found)) return false;
    return TESTS[operator](found, typeof found === "number" ? Number(value) : value);
  };
}

// Whether a row fits all words of a filter. names: of the columns, in small letters, as the values are that are words.
function conditions(text, names, valueAt, textOf) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const tests = words.map((word) => condition(word, names, valueAt, textOf));
  return (row) => tests.every((holds) => holds(row));
}
