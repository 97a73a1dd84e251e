import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync, writeFileSync } from "node:fs";
import type { RequestListener } from "node:http";
import { createServer, type Socket } from "node:net";
import { delimiter, join } from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import { listeningApiserver } from "../../test/support/kube/listening-apiserver.ts";
import { temporaryDirectory } from "../../test/support/runtime/temporary-directory.ts";
import { COMMANDS, runCommandLine } from "./cli.ts";
import { kubeconfigPaths, readKubeconfigs } from "./invocation/kubeconfig.ts";

async function cli(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  let out = "";
  let err = "";
  const terminal = {
    out: (text: string) => {
      out += text;
    },
    err: (text: string) => {
      err += text;
    },
    interactive: false,
  };
  const code = await runCommandLine(args, { terminal, ports: systemPorts, environment: { HOME: "/nonexistent" } });
  return { code, out, err };
}

describe("the command line", () => {
  test("every command tells what it does", async () => {
    const { out } = await cli("--help");
    for (const { name, summary } of COMMANDS) {
      expect(out).toContain(summary);
      const own = await cli(name, "--help");
      expect(own.code).toBe(0);
      expect(own.out).toContain(`Usage: kubectl podseidon ${name}`);
    }
  });

  test.each<[string[], string]>([
    [["statsu"], "there is no command statsu; did you mean status?"],
    [["why"], "usage: kubectl podseidon why POD"],
    [["status", "--fats"], "see kubectl podseidon status --help"],
    [["status", "-o", "xml"], "must be json, yaml or wide"],
    [["status"], "there is no kubeconfig"],
    [["status", "--kubeconfig", "/nonexistent/file"], "/nonexistent/file can't be read"],
    [["status", "--kubeconfig", "/a:/b"], "KUBECONFIG takes several files"],
    [["status", "--token", "t"], "'--token': a command may ask several clusters, so write it into a kubeconfig"],
    [["--server", "https://a", "status"], "'--server': a command may ask several clusters"],
    [["completion", "fish"], "bash and zsh"],
    [["suspend", "web", "--for", "-5m"], "'--for' argument is ambiguous; see kubectl podseidon suspend --help"],
  ])("%j is refused with exit code 2", async (args, text) => {
    const { code, err } = await cli(...args);
    expect(err).toContain(text);
    expect(code).toBe(2);
  });

  test("explain answers as text, JSON and YAML, and suggests what may be meant", async () => {
    expect((await cli("explain", "onhold")).out).toContain("Name:    OnHold (denial)");
    const { out } = await cli("explain", "OnHold", "-o", "json");
    const text = expect.any(String);
    expect(JSON.parse(out)).toEqual({ explanations: [{ name: "OnHold", kind: "denial", means: text, act: text }] });
    expect((await cli("explain", "OnHold", "-o", "yaml")).out).toMatch(/^explanations:\n {2}- name: OnHold\n/);
    expect((await cli("explain")).out).toContain("CellStale");
    const { code, err } = await cli("explain", "CellStael");
    expect(err).toContain("did you mean CellStale?");
    expect(code).toBe(2);
  });

  test("a short flag takes its value behind an equals sign, as kubectl's do", async () => {
    const { out } = await cli("explain", "OnHold", "-o=json");
    expect(JSON.parse(out)).toMatchObject({ explanations: [{ name: "OnHold" }] });
    expect((await cli("status", "-o=")).code).toBe(2);
  });

  test.each(COMMANDS.map(({ name }) => name))("help %s tells what the command does, and runs nothing", async (name) => {
    expect(await cli("help", name)).toEqual({ code: 0, out: (await cli(name, "--help")).out, err: "" });
  });

  test.each([
    [["web", "release"], "web"],
    [["help", "statsu"], "statsu"],
    [["-wn", "shop", "resum", "status"], "resum"],
  ])("in %j the first word is the command, and %s is none", async (args, word) => {
    expect(await cli(...args)).toEqual({ code: 2, out: "", err: expect.stringContaining(`no command ${word};`) });
  });

  test("a namespace that is named like a command is no command", async () => {
    expect((await cli("-n", "status", "why")).err).toContain("usage: kubectl podseidon why POD");
  });

  test.each<[string[], string[]]>([
    [["dr"], ["drain-check"]],
    [
      ["suspend", "--f"],
      ["--for", "--forever"],
    ],
    [
      ["completion", ""],
      ["bash", "zsh"],
    ],
    [
      ["status", "-o", ""],
      ["json", "wide", "yaml"],
    ],
    [["why", "web"], []],
  ])("%j completes to %j", async (words, expected) => {
    const { out } = await cli("__complete", ...words);
    expect(out.trim().split("\n")).toEqual([...expected, ":4"]);
  });
});

describe("a cluster without the CRD", () => {
  const notServed: RequestListener = (_, response) => response.writeHead(404).end("404 page not found\n");

  test.each([["status"], ["remove-cell", "a"], ["suspend", "web"], ["dashboard"]])(
    "%j says that it is not the core, and how to name that",
    async (...args) => {
      const { kubeconfig, close } = await listeningApiserver(notServed);
      const { code, err } = await cli(...args, "--kubeconfig", kubeconfig);
      close();
      expect(err).toMatch(/^error: c: [^\n]*no PodProtectors[^\n]*--core-context[^\n]*\n$/);
      expect(code).toBe(2);
    },
  );

  test("is not known for one by who may not list protectors, and hears of the core all the same", async () => {
    const body = JSON.stringify({ kind: "Status", message: "it is forbidden" });
    const { kubeconfig, close } = await listeningApiserver((_, response) => response.writeHead(403).end(body));
    const { err } = await cli("status", "--kubeconfig", kubeconfig);
    close();
    expect(err).toMatch(/^error: c: [^\n]*: it is forbidden; [^\n]*--core-context\n$/);
  });
});

const EVERY = [["status"], ["suspend", "web", "--yes"], ["why", "p"], ["gates", "p"], ["drain-check", "n"]];

test.each<[string, number, string, RegExp]>([
  ["of an ended token", 401, JSON.stringify({ kind: "Status", message: "Unauthorized" }), /Unauthorized: .*log in/],
  ["of a proxy's page", 200, "<html>secret</html>", /not JSON.* proxy/],
  ["to http, of a port with TLS", 400, "Client sent an HTTP request to an HTTPS server.\n", /write https:/],
])("an answer %s is told with its cluster, and what to do", async (_, status, body, text) => {
  const { kubeconfig, close } = await listeningApiserver((_request, response) => response.writeHead(status).end(body));
  for (const args of EVERY) {
    const { code, err } = await cli(...args, "--kubeconfig", kubeconfig);
    expect(err).toMatch(text);
    expect(err).toMatch(/^error: c: http:[^\n]*\n$/);
    expect(err).not.toMatch(/gives no answer|secret/);
    expect(code).toBe(2);
  }
  close();
});

describe("a cluster of pods that is not there", () => {
  const empty: RequestListener = (_, response) =>
    response.end(JSON.stringify({ metadata: { resourceVersion: "1" }, items: [] }));

  test("keeps nobody from the status of a named core, as with a kubeconfig without a current context", async () => {
    const { kubeconfig, close } = await listeningApiserver(empty);
    writeFileSync(kubeconfig, readFileSync(kubeconfig, "utf8").replace('"current-context":"c",', ""));
    const result = await cli("status", "-A", "--core-context", "c", "--kubeconfig", kubeconfig);
    close();
    expect(result).toEqual({ code: 0, out: "There are no protectors.\n", err: "" });
  });
});

describe("a loaded apiserver", () => {
  /** Puts off this many requests, for no time. */
  async function status(putOff: number): Promise<{ code: number; out: string; err: string; asked: number }> {
    let asked = 0;
    const { kubeconfig, close } = await listeningApiserver((_, response) => {
      asked++;
      const body = { kind: "Status", message: "Timeout: Too large resource version: 2, current: 1", items: [] };
      if (asked <= putOff) response.writeHead(504, { "retry-after": "0" });
      response.end(JSON.stringify({ metadata: { resourceVersion: "1" }, ...body }));
    });
    const result = await cli("status", "-A", "--kubeconfig", kubeconfig);
    close();
    return { ...result, asked };
  }

  test("is asked again when it puts a read off, as by kubectl", async () => {
    expect(await status(2)).toEqual({ code: 0, out: "There are no protectors.\n", err: "", asked: 4 });
  });

  test("is not asked without end", async () => {
    const { code, err, asked } = await status(100);
    expect([code, asked]).toEqual([2, 11]);
    expect(err).toMatch(/^error: c: GET [^\n]*Too large resource version/);
  });
});

describe("standard output", () => {
  const main = join(import.meta.dirname, "main.ts");

  async function explained(stdout: "pipe" | number): Promise<[code: number | null, err: string]> {
    const child = spawn(process.execPath, [main, "explain"], { stdio: ["ignore", stdout, "pipe"] });
    child.stdout?.destroy();
    const [err] = await Promise.all([child.stderr === null ? "" : text(child.stderr), once(child, "close")]);
    return [child.exitCode, err];
  }

  test("a reader that has ended, as `head` does, ends the command in silence", async () => {
    expect(await explained("pipe")).toEqual([2, ""]);
  });

  test("standard error that nobody reads changes no exit code", async () => {
    const child = spawn(process.execPath, [main, "explain", "nothing-like-it"], { stdio: ["ignore", "pipe", "pipe"] });
    child.stderr.destroy();
    await once(child, "close");
    expect(child.exitCode).toBe(2);
  });

  test("a full disk is told in a sentence", async () => {
    const full = openSync("/dev/full", "w");
    const [code, err] = await explained(full);
    closeSync(full);
    expect(err).toMatch(/^error: standard output: ENOSPC[^\n]*\n$/);
    expect(code).toBe(2);
  });
});

describe("a signal", () => {
  const directory = temporaryDirectory();
  const server = createServer();
  beforeAll(() => once(server.listen(0, "127.0.0.1"), "listening"));
  afterAll(() => {
    server.close();
  });

  test.each(["SIGINT", "SIGTERM", "SIGHUP"] as const)("%s ends a credential plugin that hangs, too", async (signal) => {
    const kubeconfig = join(directory, "kubeconfig");
    const address = server.address();
    const exec = {
      apiVersion: "client.authentication.k8s.io/v1",
      command: process.execPath,
      // The connection is open for as long as the credential plugin lives.
      args: ["-e", `net.connect(${typeof address === "object" ? address?.port : 0}, "127.0.0.1")`],
    };
    const config = {
      "current-context": "c",
      contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
      clusters: [{ name: "c", cluster: { server: "https://127.0.0.1:1" } }],
      users: [{ name: "u", user: { exec } }],
    };
    writeFileSync(kubeconfig, JSON.stringify(config));
    const words = [join(import.meta.dirname, "main.ts"), "status", "--kubeconfig", kubeconfig];
    const child = spawn(process.execPath, words, { stdio: "ignore" });
    const [socket]: Socket[] = await once(server, "connection");
    const ends = Promise.all([once(socket?.on("error", () => {}).resume() ?? child, "close"), once(child, "close")]);
    child.kill(signal);
    expect((await ends)[1]).toEqual([null, signal]);
  });
});

describe("kubeconfigs", () => {
  const directory = temporaryDirectory();
  beforeAll(() => {
    const write = (name: string, server: string, current: string): void =>
      writeFileSync(
        join(directory, name),
        `current-context: ${current}\ncontexts: [{name: ${name}, context: {cluster: c}}]\nclusters:\n` +
          `- {name: c, cluster: {server: ${server}, certificate-authority: ca.pem}}\n` +
          `- {name: only-${name}, cluster: {}}\n`,
      );
    write("one", "https://one", "one");
    write("two", "https://two", "two");
    writeFileSync(join(directory, "broken"), "a: [");
  });

  test("the flag comes before KUBECONFIG, and that before the home directory", () => {
    const environment = { KUBECONFIG: `/a${delimiter}/b${delimiter}/a`, HOME: "/home/me" };
    expect(kubeconfigPaths("/c", environment)).toEqual(["/c"]);
    expect(kubeconfigPaths(undefined, environment)).toEqual(["/a", "/b"]);
    expect(kubeconfigPaths(undefined, { HOME: "/home/me" })).toEqual(["/home/me/.kube/config"]);
  });

  test("of several files the first that names a thing wins, and paths are beside their file", async () => {
    const paths = ["one", "missing", "two"].map((name) => join(directory, name));
    const merged = await readKubeconfigs(paths, false);
    expect(merged.contexts).toEqual(["one", "two"]);
    expect(merged.currentContext).toBe("one");
    const { clusters } = JSON.parse(merged.text ?? "");
    expect(clusters.map(({ name }: { name: string }) => name)).toEqual(["c", "only-one", "only-two"]);
    expect(clusters[0].cluster).toEqual({ server: "https://one", "certificate-authority": join(directory, "ca.pem") });
  });

  test.each(["", "# nothing yet\n"])(
    "an empty file beside another one is no error, as for kubectl: %j",
    async (text) => {
      writeFileSync(join(directory, "empty"), text);
      const { contexts } = await readKubeconfigs([join(directory, "empty"), join(directory, "one")], false);
      expect(contexts).toEqual(["one"]);
    },
  );

  test("a file that is none says so without its text", async () => {
    await expect(readKubeconfigs([join(directory, "broken")], true)).rejects.toThrow("is not YAML");
  });
});
