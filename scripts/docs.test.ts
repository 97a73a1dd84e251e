import { existsSync, globSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { describe, expect, test } from "vitest";
import { anchorsOf, commandsOf, harmless, linksOf, testsNamedIn } from "./docs.ts";
import { root } from "./root.ts";

const read = (path: string): string => readFileSync(join(root, path), "utf8");
const pages = globSync("{*.md,docs/**/*.md,scripts/**/*.md}", { cwd: root }).sort();

describe("every link leads somewhere", () => {
  test.each(pages)("%s", (page) => {
    const broken = linksOf(read(page)).flatMap(({ line, target }) => {
      if (/^(https?:|mailto:)/.test(target)) return [];
      const [path = "", anchor] = target.split("#");
      const file = path === "" ? join(root, page) : join(root, dirname(page), decodeURI(path));
      const where = `${page}:${line} ${target}`;
      if (!existsSync(file)) return [where];
      if (anchor === undefined || statSync(file).isDirectory()) return [];
      return anchorsOf(readFileSync(file, "utf8")).has(anchor) ? [] : [where];
    });
    expect(broken).toEqual([]);
  });

  test("every page of docs/ can be reached from its index", () => {
    const reached = new Set<string>();
    const visit = (page: string): void => {
      if (reached.has(page)) return;
      reached.add(page);
      for (const { target } of linksOf(read(page))) {
        const [path = ""] = target.split("#");
        const file = relative(root, join(root, dirname(page), path));
        if (path.endsWith(".md") && existsSync(join(root, file))) visit(file);
      }
    };
    for (const start of ["README.md", "ARCHITECTURE.md", "docs/README.md"]) visit(start);
    expect(pages.filter((page) => page.startsWith("docs/") && !reached.has(page))).toEqual([]);
  });
});

describe("every test that the documentation names is there", () => {
  test.each(pages.filter((page) => testsNamedIn(read(page)).length > 0))("%s", (page) => {
    const missing = testsNamedIn(read(page)).filter(
      ({ file, title }) => !existsSync(join(root, file)) || !read(file).includes(title),
    );
    expect(missing).toEqual([]);
  });

  test("and every failure names one", () => {
    const rows = read("docs/failures.md")
      .split("\n")
      .filter((line) => line.startsWith("| ") && !/^\| (fails|lost|does|---)/.test(line));
    expect(rows.length).toBeGreaterThan(20);
    expect(rows.filter((row) => testsNamedIn(row).length === 0)).toEqual([]);
  });
});

test("npm scripts that the documentation names are there", () => {
  const { scripts }: { scripts: Record<string, string> } = JSON.parse(read("package.json"));
  const named = pages.flatMap((page) =>
    commandsOf(read(page))
      .map(({ text }) => /^npm (?:run )?([\w:]+)/.exec(text)?.[1])
      .filter((name) => name !== undefined && !["ci", "install"].includes(name)),
  );
  expect(named.length).toBeGreaterThan(2);
  expect(named.filter((name) => name !== undefined && scripts[name] === undefined)).toEqual([]);
});

describe("reading a page", () => {
  const page = [
    "# A `b` c-d!",
    "## A",
    "## A",
    "[x](y.md#z) `[no](link)` ![p](q.svg)",
    "```sh",
    "kubectl get pods # all",
    "# a remark",
    "```",
    "```console",
    "$ npm test",
    "  $ output",
    "```",
  ].join("\n");

  test("finds links, not those in code", () => {
    expect(linksOf(page)).toEqual([
      { line: 4, target: "y.md#z" },
      { line: 4, target: "q.svg" },
    ]);
  });
  test("makes anchors as GitHub does", () => {
    expect([...anchorsOf(page)]).toEqual(["a-b-c-d", "a", "a-1"]);
  });
  test("finds commands, not their output", () => {
    expect(commandsOf(page).map(({ text }) => text)).toEqual(["kubectl get pods # all", "npm test"]);
  });
});

test.each<[string, string]>([
  ["kubectl get pods", "kubectl get pods"],
  ["kubectl --namespace x delete pod POD", "kubectl --namespace x delete pod web-0 --dry-run=server"],
  ["kubectl apply -k crds", "kubectl apply -k crds --dry-run=server"],
  ["kubectl podseidon suspend NAME --yes", "kubectl podseidon suspend deployment-web"],
  ["kubectl label pod x NAMESPACE=1 --dry-run=client", "kubectl label pod x shop=1 --dry-run=client"],
  ["kubectl --context worker-1 get ppr --watch", "kubectl --context core get ppr"],
  ["kubectl create token x", "kubectl create token x"],
  ["kubectl apply -k manifests/overlays/NAME", "kubectl apply -k manifests/overlays/NAME --dry-run=server"],
])("%s is tried as %s", (command, expected) => {
  expect(harmless(command, "core", { POD: "web-0", NAME: "deployment-web", NAMESPACE: "shop" })).toBe(expected);
});
