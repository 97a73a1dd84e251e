/** Reading the documentation as its tests do: links, anchors, and the commands that it tells people to type. Pure. */

export interface Link {
  readonly line: number;
  readonly target: string;
}

/** The text with code blanked out, so that what looks like a link in it is none. */
function withoutCode(markdown: string): string {
  return markdown
    .replace(/^(```|~~~)[\s\S]*?^\1\s*$/gm, (block) => block.replace(/[^\n]/g, " "))
    .replace(/`[^`\n]*`/g, (span) => " ".repeat(span.length));
}

/** Every link and picture of a page. */
export function linksOf(markdown: string): readonly Link[] {
  const text = withoutCode(markdown);
  return [...text.matchAll(/\]\(([^()\s]+)(?:\s+"[^"]*")?\)/g)].map((match) => ({
    line: text.slice(0, match.index).split("\n").length,
    target: match[1] ?? "",
  }));
}

/** The anchors of a page's headings, as GitHub makes them. */
export function anchorsOf(markdown: string): ReadonlySet<string> {
  const seen = new Map<string, number>();
  const anchors = new Set<string>();
  for (const [, heading = ""] of markdown
    .replace(/^(```|~~~)[\s\S]*?^\1\s*$/gm, "")
    .matchAll(/^#{1,6}\s+(.+?)\s*$/gm)) {
    const slug = heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, "")
      .replaceAll(/\s/g, "-");
    const count = seen.get(slug) ?? 0;
    seen.set(slug, count + 1);
    anchors.add(count === 0 ? slug : `${slug}-${count}`);
  }
  return anchors;
}

export interface DocumentedCommand {
  readonly line: number;
  readonly text: string;
}

/** What a reader is told to type: the lines of `sh` blocks, and those of `console` blocks that begin with `$`. */
export function commandsOf(markdown: string): readonly DocumentedCommand[] {
  const commands: DocumentedCommand[] = [];
  let language: string | undefined;
  for (const [index, raw] of markdown.split("\n").entries()) {
    const fence = /^\s*```(\S*)/.exec(raw);
    if (fence !== null) {
      language = language === undefined ? (fence[1] ?? "") : undefined;
      continue;
    }
    // A `$` that is indented is part of what a command printed.
    const text =
      language === "sh" ? raw.trim() : language === "console" && raw.startsWith("$ ") ? raw.slice(2).trim() : "";
    if (text !== "" && !text.startsWith("#")) commands.push({ line: index + 1, text });
  }
  return commands;
}

export interface NamedTest {
  readonly line: number;
  readonly file: string;
  readonly title: string;
}

/** The tests that a page names as `file` "title". */
export function testsNamedIn(markdown: string): readonly NamedTest[] {
  return markdown.split("\n").flatMap((line, index) =>
    [...line.matchAll(/`([\w/.-]+\.test\.ts)` "([^"]+)"/g)].map(([, file = "", title = ""]) => ({
      line: index + 1,
      file,
      title,
    })),
  );
}

/** What stands for something in the documentation, and may be put in its place. */
export type Stand = Readonly<Record<string, string>>;

/**
 * A documented kubectl command as it can be run on a cluster of tests: what it would change is tried as a dry run, contexts are those of
 * the test, and nothing is followed for ever.
 */
export function harmless(command: string, context: string, stand: Stand): string {
  let text = command.replaceAll(/--context[ =]\S+/g, `--context ${context}`).replace(/\s+--(watch|follow)\b/, "");
  for (const [word, value] of Object.entries(stand))
    text = text.replace(new RegExp(`(?<![\\w./-])${word}(?![\\w./-])`, "g"), value);
  const words = text.split(/\s+/);
  if (words[1] === "podseidon") return text.replace(/\s+--yes\b/, "");
  if (/\b(auth|create token|rollout status)\b/.test(text) || text.includes("--dry-run")) return text;
  return words.some((word) => CHANGES.includes(word)) ? `${text} --dry-run=server` : text;
}

/** Exit codes with which a documented command has done what it says: some answer a question by theirs. */
export function goodCodes(command: string): readonly number[] {
  return /^kubectl (podseidon (why|drain-check|doctor)|auth can-i)\b/.test(command) ? [0, 1] : [0];
}

const CHANGES = [
  "apply",
  "create",
  "delete",
  "label",
  "annotate",
  "scale",
  "patch",
  "drain",
  "cordon",
  "replace",
  "set",
];
