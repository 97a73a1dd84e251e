/**
 * Values of an object at paths such as `.spec.groups[*].size`: the subset of kubectl's JSONPath for one value, or for
 * one value in each entry of one list. A template is a path, or text with paths in braces: `{.metadata.name}-db`.
 */
import { isRecord } from "../../../shared/schema/check.ts";

type Steps = readonly (string | number)[];

interface ObjectPath {
  /** Path of the list whose entries `steps` begin at; undefined where they begin at the object. */
  readonly list: Steps | undefined;
  readonly steps: Steps;
}

export interface Template {
  readonly text: string;
  readonly parts: readonly (string | ObjectPath)[];
}

const STEP = /\.([A-Za-z0-9_-]+)|\['([^']+)'\]|\[(\d+)\]|(\[\*\])/y;
/**
 * A value that is inserted into text must be valid in a name or label, so that it can't add a requirement to a
 * selector.
 */
const INSERTED = /^[A-Za-z0-9._-]+$/;

/** Undefined for any other text. */
function parsePath(text: string): ObjectPath | undefined {
  let list: Steps | undefined;
  let steps: (string | number)[] = [];
  let from = 0;
  while (from < text.length) {
    STEP.lastIndex = from;
    const [whole, field, quoted, index, each] = STEP.exec(text) ?? [];
    if (whole === undefined || (each !== undefined && list !== undefined)) return undefined;
    from += whole.length;
    if (each === undefined) steps.push(field ?? quoted ?? Number(index));
    else [list, steps] = [steps, []];
  }
  return text === "" ? undefined : { list, steps };
}

/** Undefined for text with unreadable braces or paths. */
export function parseTemplate(text: string): Template | undefined {
  const isPath = text.startsWith(".") || text.startsWith("[");
  const pieces = isPath ? ["", text, ""] : text.split(/\{([^{}]*)\}/);
  const parts: (string | ObjectPath)[] = [];
  for (const [index, piece] of pieces.entries()) {
    if (index % 2 === 0) {
      if (/[{}]/.test(piece)) return undefined;
      if (piece !== "") parts.push(piece);
      continue;
    }
    const path = parsePath(piece);
    if (path === undefined) return undefined;
    parts.push(path);
  }
  return parts.length === 0 ? undefined : { text, parts };
}

/** The lists in the template's paths, as text to compare. */
export function listsOf({ parts }: Template): string[] {
  return parts.flatMap((part) => (typeof part === "string" || part.list === undefined ? [] : [showList(part.list)]));
}

function showList(list: Steps): string {
  return `${list.map((step) => (typeof step === "number" ? `[${step}]` : `.${step}`)).join("")}[*]`;
}

/** The entries of the list that the paths of these templates begin at; undefined where there is no list. */
export function entriesOf(object: unknown, templates: readonly Template[]): readonly unknown[] | undefined {
  const paths = templates.flatMap(({ parts }) => parts.filter((part) => typeof part !== "string"));
  const list = paths.find((path) => path.list !== undefined)?.list;
  const found = list === undefined ? undefined : valueAt(object, list);
  return Array.isArray(found) ? found : undefined;
}

/**
 * The value of a single path unchanged, or the text with its paths replaced. Undefined where a value is missing or
 * can't be inserted.
 */
export function readTemplate({ parts }: Template, object: unknown, entry: unknown): unknown {
  const values = parts.map((part) =>
    typeof part === "string"
      ? { text: part }
      : { value: valueAt(part.list === undefined ? object : entry, part.steps) },
  );
  const [only] = values;
  if (values.length === 1 && only !== undefined && "value" in only) return only.value;
  let text = "";
  for (const one of values) {
    const inserted = "text" in one ? one.text : wordOf(one.value);
    if (inserted === undefined) return undefined;
    text += inserted;
  }
  return text;
}

function wordOf(value: unknown): string | undefined {
  const text = typeof value === "string" || typeof value === "number" ? String(value) : "";
  return INSERTED.test(text) ? text : undefined;
}

function valueAt(from: unknown, steps: Steps): unknown {
  let value = from;
  for (const step of steps) {
    if (typeof step === "number") value = Array.isArray(value) ? value[step] : undefined;
    else value = isRecord(value) && Object.hasOwn(value, step) ? value[step] : undefined;
  }
  return value ?? undefined;
}
