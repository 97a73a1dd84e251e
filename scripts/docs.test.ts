import { spawnSync } from "node:child_process";
import { existsSync, globSync, readFileSync, statSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { describe, expect, test } from "vitest";
import {
  anchorsOf,
  blocksWithTests,
  commandsOf,
  documentedCommands,
  harmless,
  inlineCommandsOf,
  linksOf,
  pathsNamedIn,
  testsNamedIn,
} from "../test/support/documentation.ts";
import { MANIFESTS } from "./release/manifests.ts";
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

test("every row of a table has as many cells as its head: what is beyond is not shown", () => {
  const wrong = pages.flatMap((page) => {
    const cells = read(page)
      .replace(/^```[\s\S]*?^```$/gm, (block) => block.replace(/[^\n]/g, ""))
      .split("\n")
      .map((line) => (line.startsWith("|") ? line.replaceAll("\\|", "").split("|").length : 0));
    return cells.flatMap((count, index) => {
      const above = cells[index - 1] ?? 0;
      return count > 0 && above > 0 && count !== above ? [`${page}:${index + 1}`] : [];
    });
  });
  expect(wrong).toEqual([]);
});

/** Files that a release has, and the tree has not: `test/cluster/installation/release.test.ts` makes them. */
const RELEASED = [...MANIFESTS.map(({ file }) => file), "podseidon.krew.yaml", "sbom.cdx.json", "uninstall.sh"];

describe("every file and folder that the documentation names is there", () => {
  test.each(pages.filter((page) => pathsNamedIn(read(page), dirname(page)).length > 0))("%s", (page) => {
    const missing = pathsNamedIn(read(page), dirname(page)).filter(
      ({ candidates }) =>
        !candidates.some((path) => RELEASED.includes(basename(path)) || globSync(path, { cwd: root }).length > 0),
    );
    expect(missing).toEqual([]);
  });
});

describe("every test that the documentation names is there", () => {
  test.each(pages.filter((page) => testsNamedIn(read(page)).length > 0))("%s", (page) => {
    const missing = testsNamedIn(read(page)).filter(
      ({ file, title }) => !existsSync(join(root, file)) || !read(file).includes(title),
    );
    expect(missing).toEqual([]);
  });

  test("and every block that names a test has it", () => {
    const tests = globSync("test/**/*.test.ts", { cwd: root }).map(read);
    const untested = pages.flatMap((page) => {
      const own = tests.filter((text) => text.includes(`${page}", import.meta.url`)).join("\n");
      return blocksWithTests(read(page))
        .filter((name) => !own.includes(`"${name}"`))
        .map((name) => `${page}: ${name}`);
    });
    expect(untested).toEqual([]);
  });

  test("and every failure names one", () => {
    const rows = read("docs/failures.md")
      .split("\n")
      .filter((line) => line.startsWith("| ") && !/^\| (fails|lost|does|---)/.test(line));
    expect(rows.length).toBeGreaterThan(20);
    expect(rows.filter((row) => testsNamedIn(row).length === 0)).toEqual([]);
  });
});

describe("every command that is not kubectl's", () => {
  const commands = pages.flatMap((page) =>
    documentedCommands(read(page)).map(({ text, line }) => ({ text, page, line })),
  );
  const others = [...new Set(commands.map(({ text }) => text))].filter((text) => !text.startsWith("kubectl "));

  test.each(others.filter((text) => text.startsWith("npm ")))("%s is one that its script knows", (text) => {
    const { scripts }: { scripts: Record<string, string> } = JSON.parse(read("package.json"));
    const [, name = "", rest = ""] = /^npm (?:run )?([\w:]+)(?: -- (.+))?$/.exec(text) ?? [];
    const file = /(?<=bootstrap\.mjs )\S+/.exec(scripts[name] ?? "")?.[0] ?? "";
    expect(existsSync(join(root, file)), `package.json has no script "${name}"`).toBe(true);
    if (rest === "") return;
    const words = rest.split(" ");
    const known = name === "test" ? read(file) : helpOf(file, words.slice(0, words[0]?.startsWith("-") ? 0 : 1));
    const unknown = words.filter((word, index) => {
      if (/[/]/.test(word)) return !existsSync(join(root, word));
      // The value of the flag before it.
      if (!word.startsWith("-") && words[index - 1]?.startsWith("-")) return false;
      return !known.includes(word);
    });
    expect(unknown).toEqual([]);
  });

  test.each(others.filter((text) => text.startsWith("export ")))("%s sets a variable that something reads", (text) => {
    const name = /^export (\w+)=\S+$/.exec(text)?.[1] ?? text;
    const isRead = globSync("{scripts,shared}/**/*.ts", { cwd: root }).some((file) => read(file).includes(name));
    expect(isRead).toBe(true);
  });

  // What they do is tested elsewhere: `test/cluster/installation/uninstall.test.ts`, and the image in
  // `test/cluster/installation/demo-manifests.test.ts`.
  test.each(others.filter((text) => /^(sh|docker) /.test(text)))("%s begins with a file that is there", (text) => {
    const file = /^(?:sh|docker build --file) (\S+)/.exec(text)?.[1] ?? "";
    expect(RELEASED.includes(file) || existsSync(join(root, file))).toBe(true);
  });

  test("is of a kind that is tried here or on a cluster", () => {
    expect(
      others.filter((text) => !/^(npm|export|sh |docker |node dist\/|source <\(kubectl podseidon )/.test(text)),
    ).toEqual([]);
  });
});

const helps = new Map<string, string>();

/** What a script says of itself, with the words that choose a part of it. */
function helpOf(file: string, words: readonly string[]): string {
  const key = [file, ...words].join(" ");
  const known = helps.get(key) ?? askForHelp(file, words);
  helps.set(key, known);
  return known;
}

function askForHelp(file: string, words: readonly string[]): string {
  const { stdout, status } = spawnSync(process.execPath, [join(root, file), ...words, "--help"], { encoding: "utf8" });
  expect(status, `${file} ${words.join(" ")} --help`).toBe(0);
  return `${words.join(" ")} --help ${stdout}`;
}

/** Each `sh` or `console` block of a page. */
const blocksOf = (page: string): readonly string[] =>
  [...read(page).matchAll(/^```(?:sh|console)\n([\s\S]*?)^```$/gm)].map(([, text = ""]) => text);
const LOOSENS = /^\$? ?kubectl podseidon (suspend|release|remove-cell|leave)\b/;

describe("what a page says is so", () => {
  test("a command that loosens protection has --yes, or its block says that it only shows", () => {
    const silent = pages.flatMap((page) =>
      blocksOf(page).flatMap((block) =>
        block
          .split("\n")
          .filter((line, index, lines) => LOOSENS.test(line) && !lines[index - 1]?.startsWith("# Shows"))
          .filter((line) => !line.includes("--yes"))
          .map((line) => `${page}: ${line}`),
      ),
    );
    expect(silent).toEqual([]);
  });

  test("a protector is named as the generator names it", () => {
    const named =
      /kubectl podseidon (?:status|suspend|resume|release) (?!(?:NAME|PROTECTOR|[a-z]+-\w[\w-]*|[a-z]+\/\w+)\b)[^-\s`]/;
    expect(pages.filter((page) => named.test(read(page)))).toEqual([]);
  });

  test("after the demo, kubectl asks the demo's clusters, and the plugin its core", () => {
    const lost = pages.filter((page) =>
      blocksOf(page).some((block) => {
        const [before = "", after] = block.split("export KUBECONFIG=");
        if (after === undefined) return /npm run demo\n[\s\S]*kubectl/.test(before);
        return read(page).includes("kubectl podseidon ") && !after.includes("export PODSEIDON_CORE_CONTEXT=core\n");
      }),
    );
    expect(lost).toEqual([]);
  });

  test("every condition type of the code is in the reference and in the design, and no other", () => {
    const sources = globSync("{shared/decide/state/conditions,controllers/generator/protectors/source-condition}.ts", {
      cwd: root,
    }).map(read);
    const types = sources
      .flatMap((text) => [
        ...text.matchAll(/\b(?:type:|(?:type|TYPE|SUSPENDED|SHARES_PODS|PODS_VANISHED)(?:: string)? =) "([A-Z]\w+)"/g),
      ])
      .map(([, type = ""]) => type);
    const rows = [/^\| `type` \| string \(required\) \| (.*) \|$/m.exec(read("docs/api.md"))?.[1] ?? ""];
    rows.push(/^\| `status\.conditions\[\]` +\| (.*) \|$/m.exec(read("docs/design.md"))?.[1] ?? "");
    expect(types.length).toBeGreaterThanOrEqual(7);
    for (const row of rows) expect(row.match(/\b[A-Z]\w+/g)?.sort()).toEqual([...types].sort());
  });

  test("a bundle is named with its chunks and the first Node.js that runs it", () => {
    const paragraphs = pages.flatMap((page) =>
      read(page)
        .split(/\n\n+/)
        .map((text) => ({ page, text })),
    );
    const claims = paragraphs.filter(({ text }) => /`npm run build` writes/.test(text));
    expect(claims.length).toBeGreaterThan(1);
    expect(claims.filter(({ text }) => !/`dist\/chunks`/.test(text) || !/Node\.js 24\.6/.test(text))).toEqual([]);
  });

  test("the audit annotations of every webhook are named, as kube-apiserver prefixes them", () => {
    const file = "manifests/base/webhook-configuration/webhook-configuration.yaml";
    // The second document is the mutating configuration, whose responses say nothing to the audit log.
    const [configuration = ""] = read(file).split("\n---\n");
    const names = [...configuration.matchAll(/^ {2}- name: (\S+\.podseidon\.kubewharf\.io)$/gm)].map(
      ([, name]) => name,
    );
    const page = read("docs/operations.md");
    expect(names.length).toBeGreaterThan(5);
    expect(names.filter((name) => !page.includes(`\`${name}/review\``))).toEqual([]);
  });

  test("no command installs a cell under the id of another: the shipped overlay is not applied as it is", () => {
    const shipped = /kubectl (?:--context \S+ )?apply -k manifests\/overlays\/(?:rollout\/\S+\/)?worker$/;
    const wrong = pages.flatMap((page) => documentedCommands(read(page)).filter(({ text }) => shipped.test(text)));
    expect(wrong).toEqual([]);
  });

  test("what an earlier version had in each cluster is deleted in the core, too", () => {
    const commands = documentedCommands(read("docs/operations.md")).map(({ text }) => text);
    for (const context of ["core", "worker-2"])
      expect(commands).toContain(`kubectl --context ${context} delete priorityclass podseidon --ignore-not-found`);
  });

  test("one label has one meaning: what selects a namespace does not protect a workload", () => {
    for (const component of globSync("manifests/overlays/rollout/*/*/kustomization.yaml", { cwd: root })) {
      const lines = read(component).split("\n");
      const old = lines.some((line) => line.includes("components/selected-namespaces"));
      expect(old && !/superseded/.test(lines[0] ?? ""), component).toBe(false);
    }
    expect(read("docs/install.md")).not.toMatch(
      /namespaces? with the label\s+`podseidon\.kubewharf\.io\/protect=true`/,
    );
  });
});

/** The value of a benchmark's row, by the words that the row begins with. */
function measured(row: string, column: number): number {
  const line = read("docs/benchmarks.md")
    .split("\n")
    .find((one) => one.startsWith(`| ${row}`));
  return Number.parseFloat(line?.split("|")[column]?.replace(/[^\d.]/g, "") ?? "");
}

/** Two significant digits, as a page tells them. */
const told = (value: number, digits = 2): string => Number(value.toPrecision(digits)).toLocaleString("en-US");

test("the table of capacity tells what the benchmarks measured", () => {
  const after = (row: string, from: string): number => {
    const page = read("docs/benchmarks.md");
    const rest = page.slice(page.indexOf(`| ${from}`));
    return Number.parseFloat(
      rest
        .split("\n")
        .find((line) => line.includes(`| ${row} `))
        ?.split("|")[3] ?? "",
    );
  };
  const figures = [
    `${told(measured("no protector matches, c=50", 3))} admission requests a second`,
    `${told(measured("one protector, 3 replicas", 3))} admission requests a second by three replicas`,
    `some ${told(1000 / after("writes + conflicts", "one protector, 3 replicas"), 1)} reservations in one write`,
    `${told(measured("1,000 protectors, c=100", 3))} admission requests a second: each`,
    `at most ${measured("after 200,000 reviews", 3)} MB of memory after 200,000`,
    `${measured("1,000 of 1,000 reserved", 3).toFixed(0)} KiB of object`,
    `counted ${told(measured("all counted after start", 2) / 1000)} s after its start, at most ` +
      `${measured("peak memory until then", 2)} MB of memory; ${measured("pod change to status", 2).toFixed(0)} ms`,
    `protected ${measured("exec to 10000 protectors", 2).toFixed(0)} s after its start, at most ` +
      `${measured("peak memory  ", 2)} MB of memory; ${measured("a changed Deployment to its protector, p50", 2)} ms`,
  ];
  const page = read("docs/operations.md");
  expect(figures.filter((figure) => !page.includes(figure))).toEqual([]);
});

test("in the picture of the parts, every text fits the box that it stands in", () => {
  const number = (element: string, name: string): number =>
    Number(new RegExp(`\\s${name}="(-?[\\d.]+)"`).exec(element)?.[1] ?? Number.NaN);
  const picture = read("docs/parts.svg");
  const boxes = [...picture.matchAll(/<rect [^>]*>/g)]
    .map(([box]) => ({ x: number(box, "x"), y: number(box, "y"), w: number(box, "width"), h: number(box, "height") }))
    .filter(({ w }) => w < 400);
  const centred = /text-anchor="middle">([\s\S]*?)<\/g>/.exec(picture)?.[1] ?? "";
  const texts = [...centred.matchAll(/(<text [^>]*>)([^<]*)</g)];
  expect(texts.length).toBeGreaterThan(10);
  const wide = texts.filter(([, head = "", text = ""]) => {
    const box = boxes.find(
      ({ x, y, w, h }) =>
        number(head, "x") > x && number(head, "x") < x + w && number(head, "y") > y && number(head, "y") < y + h,
    );
    // A wide sans-serif: where Helvetica is missing, its replacement takes 0.6 em a character, bold 0.65.
    const size = (number(head, "font-size") || 15) * (head.includes("bold") ? 0.65 : 0.6);
    return box === undefined || text.length * size > box.w;
  });
  expect(wide.map(([, , text]) => text)).toEqual([]);
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
  test("finds commands in the text; one that is only named is asked for help", () => {
    const text = "`kubectl drain`, `kubectl delete ppr --all`, `npm test`, `kubectl podseidon`\n```sh\n`npm no`\n```";
    expect(inlineCommandsOf(text).map((one) => one.text)).toEqual([
      "kubectl drain --help",
      "kubectl delete ppr --all",
      "npm test",
      "kubectl podseidon --help",
    ]);
  });
  test("finds files by the folders of their line", () => {
    expect(pathsNamedIn("`webhook/request/admission-request.ts`, `a.ts`, `test/*` `words` `a/b`", "docs")).toEqual([
      { line: 1, candidates: ["webhook/request/admission-request.ts"] },
      { line: 1, candidates: ["test/*"] },
      {
        line: 1,
        candidates: [
          "webhook/request/admission-request.ts/a.ts",
          "webhook/request/a.ts",
          "test/*/a.ts",
          "test/a.ts",
          "docs/a.ts",
          "./a.ts",
        ],
      },
    ]);
  });
  test("leaves the blocks out that a test of their own runs", () => {
    const named = `<!-- test: change -->\n\n\`\`\`sh\nkubectl delete pod x\n\`\`\`\n\n${page}`;
    expect(blocksWithTests(named)).toEqual(["change"]);
    expect(commandsOf(named).map(({ text }) => text)).toEqual(commandsOf(page).map(({ text }) => text));
    expect(commandsOf(named)[0]?.line).toBe(12);
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
