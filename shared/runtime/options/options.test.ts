import { describe, expect, test } from "vitest";
import { coreOptions, observeOptions } from "./common-options.ts";
import { checkLeaderElection, kubeconfigOptions, leaderElectionOptions } from "./controller-options.ts";
import {
  choice,
  duration,
  integer,
  list,
  namedPaths,
  option,
  optionalOption,
  port,
  requiredOption,
  text,
} from "./option-types.ts";
import { defineOptions, type ParsedOptions, parseOptions } from "./options.ts";

const definition = defineOptions({
  name: "podseidon-example",
  version: "1.2.3",
  summary: "shows options.",
  options: {
    ...observeOptions,
    ...leaderElectionOptions,
    ...kubeconfigOptions,
    core: coreOptions.core,
    cell: option(namedPaths("ID=KUBECONFIG", true), [], "Cells."),
    securePort: option(port(), 8443, "The port."),
    tlsCertFile: optionalOption(text("FILE"), "The certificate."),
    settlePeriod: option(duration({ minMs: 1000 }), 75_000, "The settle period."),
    workers: option(integer(1, 8), 2, "Workers."),
    flavour: option(choice(["plain", "fancy"]), "plain", "Flavour."),
    tags: option(list("TAG"), [], "Tags."),
  },
  check: checkLeaderElection,
});

type Parsed = ParsedOptions<(typeof definition)["options"]>;

const CORE = ["--core", "main="];

function parse(
  argv: readonly string[],
  environment: Readonly<Record<string, string>> = {},
  file: string | Error = new Error("no such file"),
): Promise<Parsed> {
  return parseOptions(definition, argv, environment, () => {
    if (file instanceof Error) throw file;
    return file;
  });
}

function valuesOf(parsed: Parsed): Extract<Parsed, { kind: "run" }>["values"] {
  if (parsed.kind === "exit") throw new Error(parsed.text);
  return parsed.values;
}

async function problemsOf(parsed: Promise<Parsed>): Promise<readonly string[]> {
  const result = await parsed;
  if (result.kind === "run" || result.code !== 2) throw new Error("was accepted");
  return result.text
    .split("\n")
    .filter((line) => line.startsWith("  "))
    .map((line) => line.trim());
}

describe("flags", () => {
  const cases: readonly [string, readonly string[], string, unknown][] = [
    ["value after a space", ["--secure-port", "1"], "securePort", 1],
    ["value after =", ["--secure-port=1"], "securePort", 1],
    ["the last of two wins", ["--secure-port=1", "--secure-port=2"], "securePort", 2],
    ["boolean alone", ["--leader-elect"], "leaderElect", true],
    ["boolean set to false", ["--leader-elect=false"], "leaderElect", false],
    ["empty value", ["--kubeconfig="], "kubeconfig", ""],
    ["value that has an =", ["--kubeconfig=/a=b"], "kubeconfig", "/a=b"],
    ["seconds", ["--settle-period=75s"], "settlePeriod", 75_000],
    ["minutes and seconds", ["--settle-period", "1m30s"], "settlePeriod", 90_000],
    ["milliseconds", ["--retry-period=100ms"], "retryPeriod", 100],
    ["fractions", ["--settle-period=1.5s"], "settlePeriod", 1500],
    ["every address", ["--metrics-bind-address=:9"], "metricsBindAddress", { host: undefined, port: 9 }],
    ["one address", ["--metrics-bind-address=127.0.0.1:0"], "metricsBindAddress", { host: "127.0.0.1", port: 0 }],
    ["IPv6", ["--metrics-bind-address=[::1]:9"], "metricsBindAddress", { host: "::1", port: 9 }],
    ["no address", ["--metrics-bind-address", "0"], "metricsBindAddress", null],
    ["repeated lists", ["--tags=a,b", "--tags", "c"], "tags", ["a", "b", "c"]],
    ["a list with spaces and a last comma, as people write it", ["--tags=a, b,"], "tags", ["a", "b"]],
    ["an empty list is no list of an empty text", ["--tags="], "tags", []],
    [
      "named paths, one without a path",
      ["--cell=a=/x", "--cell", "b", "--cell=c="],
      "cell",
      [
        { name: "a", path: "/x" },
        { name: "b", path: undefined },
        { name: "c", path: "" },
      ],
    ],
    ["nothing", [], "securePort", 8443],
    ["nothing, without a value of its own", [], "tlsCertFile", undefined],
  ];
  test.each(cases)("%s", async (_, argv, key, expected) => {
    expect(new Map(Object.entries(valuesOf(await parse([...CORE, ...argv])))).get(key)).toEqual(expected);
  });
});

describe("problems", () => {
  const cases: readonly [string, readonly string[], string][] = [
    ["port", ["--secure-port=99999"], '--secure-port: expected a whole number from 0 to 65535, got "99999"'],
    ["unit of a duration", ["--settle-period=75"], "--settle-period: expected a duration such as 75s"],
    ["least duration", ["--settle-period=1ms"], "of at least 1s"],
    ["choice", ["--flavour=odd"], "--flavour: expected one of plain, fancy"],
    ["boolean", ["--leader-elect=perhaps"], "--leader-elect: expected true or false"],
    ["boolean after a space", ["--leader-elect", "false"], 'unexpected argument "false"'],
    ["address", ["--metrics-bind-address=8080"], "--metrics-bind-address: expected an address"],
    ["missing value at the end", ["--secure-port"], "--secure-port: a value is missing"],
    ["missing value before a flag", ["--secure-port", "--workers=1"], "--secure-port: a value is missing"],
    ["misspelt flag", ["--secure-prot=1"], "--secure-prot: there is no such flag; did you mean --secure-port?"],
    ["unknown flag", ["--zzzzzzzzzz", "1"], "--zzzzzzzzzz: there is no such flag"],
    ["path missing", ["--core=b"], "--core: expected NAME=KUBECONFIG"],
    ["same name twice", ["--core=b=", "--core=b=/x"], "--core: expected NAME=KUBECONFIG"],
    ["name that is no path segment", ["--cell=a/b=/x"], "--cell: expected ID=KUBECONFIG"],
    ["times that do not fit", ["--renew-deadline=20s"], "--renew-deadline: must be shorter than --lease-duration"],
  ];
  test.each(cases)("%s", async (_, argv, expected) => {
    const problems = await problemsOf(parse([...CORE, ...argv]));
    expect(problems).toHaveLength(1);
    expect(problems[0]).toContain(expected);
  });

  test("all are reported at once, from every source", async () => {
    const problems = await problemsOf(
      parse(
        ["--secure-port=x", "--nope", "--config=/c.yaml", "--renew-deadline=20s"],
        { PODSEIDON_WORKERS: "9" },
        "flavour: odd\nsecurePrt: 1\n",
      ),
    );
    expect(problems.map((problem) => problem.split(":")[0])).toEqual([
      "--nope",
      '"securePrt" in /c.yaml',
      "--core",
      "--secure-port",
      "PODSEIDON_WORKERS",
      "flavour in /c.yaml",
      "--renew-deadline",
    ]);
  });

  test("a file that can't be read", async () => {
    expect(await problemsOf(parse([...CORE, "--config=/c.yaml"]))).toEqual([
      "--config: /c.yaml can't be read: no such file",
    ]);
  });

  test("a long value is not repeated", async () => {
    const long = await parse([...CORE, `--secure-port=${"9".repeat(100_000)}`]);
    expect(long.kind === "exit" && long.text.length).toBeLessThan(300);
  });
});

describe("precedence", () => {
  const file =
    "securePort: 1\nworkers: 3\nflavour: fancy\ncore: {a: /x}\ncell: {b: null}\ntags: [p, q]\nleaderElect: false\n";
  test("flag, then environment, then file, then the definition", async () => {
    const values = valuesOf(
      await parse(
        ["--config", "/c.yaml", "--secure-port=9"],
        { PODSEIDON_SECURE_PORT: "8", PODSEIDON_WORKERS: "7" },
        file,
      ),
    );
    expect(values).toMatchObject({
      securePort: 9,
      workers: 7,
      flavour: "fancy",
      core: [{ name: "a", path: "/x" }],
      cell: [{ name: "b", path: undefined }],
      tags: ["p", "q"],
      leaderElect: false,
      settlePeriod: 75_000,
    });
  });

  test("the file can be named by the environment, and be JSON", async () => {
    const values = valuesOf(await parse(CORE, { PODSEIDON_CONFIG: "/c" }, '{"workers": 4}'));
    expect(values.workers).toBe(4);
  });

  test("an empty variable counts as unset", async () => {
    expect(valuesOf(await parse(CORE, { PODSEIDON_WORKERS: "" })).workers).toBe(2);
  });
});

describe("printing", () => {
  test("--help names every flag, whatever else is wrong", async () => {
    const help = await parse(["--help", "--nope"]);
    expect(help).toMatchObject({ kind: "exit", code: 0 });
    for (const flag of [
      "--core NAME=KUBECONFIG (repeatable)",
      "--secure-port PORT",
      "--leader-elect\n",
      "Default: 1m15s",
    ]) {
      expect(help.kind === "exit" && help.text).toContain(flag);
    }
  });

  test("--version", async () => {
    expect(await parse(["--version"])).toEqual({ kind: "exit", code: 0, text: "podseidon-example v1.2.3\n" });
  });

  test("--print-config is a config file that gives the same values", async () => {
    const argv = ["--core=a=/x", "--cell=b", "--settle-period=90s", "--metrics-bind-address=0"];
    const printed = await parse([...argv, "--print-config"]);
    if (printed.kind === "run") throw new Error("did not print");
    expect(printed.code).toBe(0);
    expect(valuesOf(await parse(["--config=/c"], {}, printed.text))).toEqual(valuesOf(await parse(argv)));
  });

  test("--print-config reports problems like a start", async () => {
    expect(await parse(["--print-config"])).toMatchObject({ kind: "exit", code: 2 });
  });
});

test("a required option needs no value of its own", async () => {
  const small = defineOptions({
    name: "p",
    version: "1",
    summary: "s.",
    options: { cellId: requiredOption(text(), "", "The cell.") },
  });
  const none = () => "";
  expect(await parseOptions(small, [], {}, none)).toMatchObject({
    text: expect.stringContaining("--cell-id: is required"),
  });
  expect(await parseOptions(small, ["--cell-id=a"], {}, none)).toEqual({ kind: "run", values: { cellId: "a" } });
});
