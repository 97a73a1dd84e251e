/** Reads the documentation for its tests: links, anchors, and the commands that readers type. Pure. */

export interface DocumentLink {
  readonly line: number;
  readonly target: string;
}

/** The text with blanks in place of code, in which nothing is a link. */
function withoutCode(markdown: string): string {
  return markdown
    .replace(/^(```|~~~)[\s\S]*?^\1\s*$/gm, (block) => block.replace(/[^\n]/g, " "))
    .replace(/`[^`\n]*`/g, (span) => " ".repeat(span.length));
}

/** Every link and picture of a page. */
export function linksOf(markdown: string): readonly DocumentLink[] {
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

/** Names of the blocks that a test of their own runs: `<!-- test: NAME -->` is above each. */
export function blocksWithTests(markdown: string): readonly string[] {
  return [...markdown.matchAll(/<!-- test: (.+?) -->/g)].map(([, name = ""]) => name);
}

function withoutOwnTests(markdown: string): string {
  return markdown.replace(/<!-- test: .+? -->\s*^```[\s\S]*?^```\s*$/gm, (block) => block.replace(/[^\n]/g, " "));
}

/**
 * What a reader is told to type: the lines of `sh` blocks, and those of `console` blocks that begin with `$`; not those
 * of blocks that a test of their own runs.
 */
export function commandsOf(markdown: string): readonly DocumentedCommand[] {
  const commands: DocumentedCommand[] = [];
  let language: string | undefined;
  for (const [index, raw] of withoutOwnTests(markdown).split("\n").entries()) {
    const fence = /^\s*```(\S*)/.exec(raw);
    if (fence !== null) {
      language = language === undefined ? (fence[1] ?? "") : undefined;
      continue;
    }
    // An indented `$` is output of a command.
    const text =
      language === "sh" ? raw.trim() : language === "console" && raw.startsWith("$ ") ? raw.slice(2).trim() : "";
    if (text !== "" && !text.startsWith("#")) commands.push({ line: index + 1, text });
  }
  return commands;
}

/** Words with which a command begins. */
const COMMANDS = /^(kubectl|npm|node|source) \S/;

/**
 * Commands in the running text, as `code`. A command without arguments (`kubectl drain`) gets `--help`, which
 * fails for a command that does not exist.
 */
export function inlineCommandsOf(markdown: string): readonly DocumentedCommand[] {
  const text = markdown.replace(/^(```|~~~)[\s\S]*?^\1\s*$/gm, (block) => block.replace(/[^\n]/g, " "));
  return [...text.matchAll(/`([^`\n]+)`/g)].flatMap(({ 1: code = "", index }) => {
    if (!COMMANDS.test(code)) return [];
    const isName = code.startsWith("kubectl ") && code.split(" ").length <= 3 && !/[A-Z=/]|\s-/.test(code);
    return [{ line: text.slice(0, index).split("\n").length, text: isName ? `${code} --help` : code }];
  });
}

/** Every command of a page, in blocks and in the text. */
export function documentedCommands(markdown: string): readonly DocumentedCommand[] {
  return [...commandsOf(markdown), ...inlineCommandsOf(markdown)];
}

export interface DocumentPath {
  readonly line: number;
  /** Where it may be, from the root; one of them must be there. Globs. */
  readonly candidates: readonly string[];
}

/** Top folders of the tree: a path that begins with one is a path of this project. */
const FOLDERS = ["crds", "controllers", "docs", "manifests", "scripts", "shared", "test", "webhook"];
const FILE = /^[\w-]+(\.[\w-]+)*\.(ts|yaml|json|md|svg|png)$/;

/**
 * Files and folders that a page names as `code`. A path begins with a folder of the tree, or with one that the same
 * line names; a file without a folder (`plan.ts`) is in a folder that the line names, or beside the page.
 */
export function pathsNamedIn(markdown: string, directory: string): readonly DocumentPath[] {
  return markdown.split("\n").flatMap((text, index) => {
    const line = index + 1;
    const codes = [...text.matchAll(/`([^`\s]+)`/g)].map(([, code = ""]) => code);
    const paths = codes.filter(
      (code) => /^[\w.*/-]+$/.test(code) && FOLDERS.includes(code.split("/")[0] ?? "") && code.includes("/"),
    );
    const folders = paths.flatMap((path) => [path.replace(/\/$/, ""), path.replace(/\/?[^/]*$/, "")]);
    const files = codes.filter((code) => FILE.test(code.replaceAll("*", "x")) && !FOLDERS.includes(code));
    return [
      ...paths.map((path) => ({ line, candidates: [path] })),
      ...files.map((file) => ({ line, candidates: [...folders, directory, "."].map((folder) => `${folder}/${file}`) })),
    ];
  });
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

/** Placeholders of the documentation, with the values to put in their places. */
export type Stand = Readonly<Record<string, string>>;

/**
 * A documented kubectl command as a test can run it: a change becomes a dry run, contexts are those of the test, and
 * nothing is followed for ever.
 */
export function harmless(command: string, context: string, stand: Stand): string {
  let text = command.replaceAll(/--context[ =]\S+/g, `--context ${context}`).replace(/\s+--(watch|follow)\b/, "");
  for (const [word, value] of Object.entries(stand))
    text = text.replace(new RegExp(`(?<![\\w./-])${word}(?![\\w./-])`, "g"), value);
  const words = text.split(/\s+/);
  if (text.includes("podseidon dashboard")) return `${text} --help`;
  if (words[1] === "podseidon") return text.replace(/\s+--yes\b/, "");
  if (/\b(auth|config|create token|rollout status)\b/.test(text) || /--(dry-run|help)\b/.test(text)) return text;
  return words.some((word) => CHANGES.test(word)) ? `${text} --dry-run=server` : text;
}

/** Exit codes with which a documented command has done what it says: some answer a question by theirs. */
export function goodCodes(command: string): readonly number[] {
  return /^kubectl (podseidon (why|drain-check|doctor|suspend|release|remove-cell)|auth can-i)\b/.test(command)
    ? [0, 1]
    : [0];
}

const CHANGES = /^(apply|create|delete|label|annotate|scale|patch|drain|cordon|replace|set)$/;

/**
 * The metrics of this project in an expression, without prefix and without what a histogram appends; each once, in
 * order.
 */
export function metricsOf(expressions: string): readonly string[] {
  const found = [...expressions.matchAll(/\bpodseidon_([a-z][a-z0-9_]*)/g)].map(([, name = ""]) => name);
  return [...new Set(found.map((name) => name.replace(/_(bucket|sum|count)$/, "")))].sort();
}
