// The order of documents, as the server has it: null, false, true, numbers, texts, lists, objects; at last by id.

const KINDS = { boolean: 1, number: 3, string: 4 };

function kindOf(value) {
  if (value === null || value === undefined) return 0;
  if (Array.isArray(value)) return 5;
  return (KINDS[typeof value] ?? 6) + (value === true ? 1 : 0);
}

function compareValues(one, other) {
  const kind = kindOf(one);
  if (kind !== kindOf(other)) return kind - kindOf(other);
  if (kind === 3) return one - other;
  if (kind === 4) return compareTexts(one, other);
  return kind >= 5 ? compareTexts(textOf(one), textOf(other)) : 0;
}

// As the server writes it: fields in order, whichever was written first.
function textOf(value) {
  if (Array.isArray(value)) return `[${value.map(textOf).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const names = Object.keys(value).sort(compareTexts);
  return `{${names.map(name => `${JSON.stringify(name)}:${textOf(value[name])}`).join(",")}}`;
}

// By code point: JavaScript compares halves of those beyond U+FFFF, which would come before U+E000 that way.
function compareTexts(one, other) {
  if (one === other) return 0;
  let at = 0;
  while (one[at] === other[at]) at += 1;
  // In the middle of a pair, the pair counts.
  if (at > 0 && /[\ud800-\udbff]/.test(one[at - 1])) at -= 1;
  return (one.codePointAt(at) ?? -1) - (other.codePointAt(at) ?? -1);
}

/** Which of two documents comes first. */
export function compareDocuments(one, other, orderBy) {
  for (const { field, direction } of orderBy) {
    const found = compareValues(valueAt(one, field), valueAt(other, field));
    if (found !== 0) return direction === "desc" ? -found : found;
  }
  const byId = compareTexts(one.id, other.id);
  return orderBy.at(-1)?.direction === "desc" ? -byId : byId;
}

function valueAt(document, field) {
  return field.split(".").reduce((value, name) => (value === null || typeof value !== "object" ? null : value[name]), document);
}
