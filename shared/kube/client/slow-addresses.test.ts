import { spawn } from "node:child_process";
import dns from "node:dns";
import { once } from "node:events";
import { createServer } from "node:http";
import { connect } from "node:net";
import { performance } from "node:perf_hooks";
import { expect, onTestFinished, test, vi } from "vitest";
import { accessTo, GET, material, ok } from "../../../test/support/kube/https-server.ts";
import { ADDRESS_MS } from "../../runtime/name-lookup.ts";
import { systemPorts } from "../../runtime/system-ports.ts";
import { createHttpsTransport } from "./https-transport.ts";

const LISTEN =
  "require('net').createServer().listen({port:0,host:'127.0.0.1',backlog:1}," +
  "function(){console.log(this.address().port)})";
/** More than the kernel accepts for a process that does not run. */
const QUEUE = 4;

/** A port of 127.0.0.1 whose process is frozen, with so many connections waiting that no other one gets an answer. */
async function silentPort(): Promise<number> {
  const child = spawn(process.execPath, ["-e", LISTEN], { stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  const [line]: unknown[] = await once(child.stdout, "data");
  const port = Number(line);
  child.kill("SIGSTOP");
  const waiting = Array.from({ length: QUEUE }, () => connect(port, "127.0.0.1").on("error", () => {}));
  onTestFinished(() => waiting.forEach((socket) => void socket.destroy()));
  await Promise.race(waiting.map((socket) => once(socket, "connect")));
  return port;
}

test("an address has the time that a distant apiserver needs, before the next one is tried", async () => {
  const port = await silentPort();
  const server = createServer(ok).listen(port, "127.0.0.2");
  onTestFinished(() => void server.close());
  const addresses = ["127.0.0.1", "127.0.0.2"].map((address) => ({ address, family: 4 }));
  const lookup = vi.spyOn(dns, "lookup").mockImplementation((...call: readonly unknown[]) => {
    const callback = call.at(-1);
    if (typeof callback === "function") setImmediate(() => void callback(null, addresses));
    return undefined as never;
  });
  onTestFinished(() => lookup.mockRestore());
  const credentials = { authorization: undefined, tls: material() };
  const access = accessTo(`http://far.test:${port}`, { credentials, rejections: 0, renewed: undefined });
  const transport = createHttpsTransport(access, { ports: systemPorts, userAgent: "test" });
  onTestFinished(() => transport.close());
  const startMs = performance.now();
  const { status } = await transport.request({ ...GET, timeoutMs: 30_000 });
  // Not how fast it is: a distant apiserver would have answered meanwhile.
  expect([status, performance.now() - startMs >= ADDRESS_MS]).toEqual([200, true]);
});
