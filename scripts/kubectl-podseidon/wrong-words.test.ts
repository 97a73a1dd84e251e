/** A command line that can't be meant is refused before a cluster is asked, with what to write instead. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import { type ListeningApiserver, listeningApiserver } from "../../test/support/kube/listening-apiserver.ts";
import { runCommandLine } from "./cli.ts";

const asked: string[] = [];
let server: ListeningApiserver;
beforeAll(async () => {
  server = await listeningApiserver(({ url }, response) => {
    asked.push(`${url}`);
    response.writeHead(404).end("{}");
  });
});
afterAll(() => server.close());

const JOIN = ["join", "b", "--core-context", "c", "--context", "c"];

test.each<[string[], RegExp]>([
  [["suspend", "web", "--for", "3x"], /--for 3x: write it as 30m, 2h or 1d/],
  [["suspend", "web", "--for", ""], /--for : write it as 30m, 2h or 1d/],
  [["suspend", "web", "--for", "1h", "--forever"], /--for and --forever exclude each other/],
  [["suspend", "web", "--cells", "a,"], /--cells "a,": name each cell, as in --cells worker-1,worker-2/],
  [["suspend", "web", "--cells", "a b"], /"a b" is no id of a cell/],
  [["suspend", ""], /usage: .* suspend PROTECTOR; an argument is empty/],
  [["status", ""], /an argument is empty/],
  [["status", "--watch", "--output", "json"], /--watch prints lines for people: leave --output away/],
  [["status", "--namespace", "Shop_1"], /--namespace Shop_1: .* lower-case letters, digits and "-"/],
  [["status", "-A", "--context", "nope", "--core-context", "c"], /no context "nope" \(contexts: c\)/],
  [["why", "deployment/web"], /deployment\/web is no name of a pod: see kubectl get pods/],
  [["why", "web-1", "--cell", "a,b"], /"a,b" is no id of a cell/],
  [["gates", "pod/"], /pod\/ is no name of a pod/],
  [["drain-check", "nodes/"], /nodes\/ is no name of a node: see kubectl get nodes/],
  [["drain-check", "n", "--cell", "a,b"], /"a,b" is no id of a cell/],
  [["remove-cell", "a,b"], /"a,b" is no id of a cell/],
  [["remove-cell", "a", ""], /an argument is empty/],
  [[...JOIN, "--duration", ""], /--duration : write it as 24h or 7d/],
  [[...JOIN, "--duration", "5m"], /--duration 5m: .* no shorter than an hour/],
  [[...JOIN, "--server", "host:6443"], /--server: host:6443 is no address like https:\/\/HOST:6443/],
  [["doctor", "--system-namespace", "a b"], /--system-namespace a b: .* lower-case letters/],
  [["suspend", "web", "-A", "--yes"], /suspend is about one object: name its namespace by -n, in place of -A/],
  [["why", "web-1", "-A"], /why is about one object/],
  [["remove-cell", "a", "web", "-A"], /the named protectors are those of one namespace: leave -A or their names out/],
  [["doctor", ""], /an argument is empty/],
])("%j is refused before a cluster is asked", async (args, text) => {
  asked.length = 0;
  let err = "";
  const say = (part: string): void => {
    err += part;
  };
  const terminal = { out: say, err: say, interactive: false };
  const surroundings = { terminal, ports: systemPorts, environment: {} };
  const code = await runCommandLine([...args, "--kubeconfig", server.kubeconfig], surroundings);
  expect([code, asked]).toEqual([2, []]);
  expect(err).toMatch(text);
});
