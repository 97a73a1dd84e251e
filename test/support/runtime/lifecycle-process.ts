/** A small process for `lifecycle.process.test.ts` that prints its lifecycle. The argument says what goes wrong. */

import { HealthServer } from "../../../shared/runtime/health-server.ts";
import { Lifecycle } from "../../../shared/runtime/lifecycle.ts";
import { commandLine } from "../../../shared/runtime/options/command-line.ts";
import { systemPorts } from "../../../shared/runtime/system-ports.ts";
import { systemProcess } from "../../../shared/runtime/system-process.ts";

const [mode = "", port = "0"] = process.argv.slice(2);
const say = (text: string): boolean => process.stdout.write(`${text}\n`);
if (mode === "starting") {
  process.argv.splice(2);
  await commandLine({ name: "fixture", version: "0", summary: "", options: {} });
  const release = systemProcess.hold();
  say("options read");
  // Like a process that waits for its credentials.
  await new Promise(() => release);
}
const lifecycle = new Lifecycle({
  ports: systemPorts,
  process: systemProcess,
  graceMs: mode === "stuck" ? 60_000 : 5000,
  unreadyMs: 0,
  onEvent: (event) => say("error" in event ? `${event.kind} ${event.error.message}` : event.kind),
});
const server = new HealthServer(
  { healthProbeBindAddress: { host: "127.0.0.1", port: Number(port) }, metricsBindAddress: null },
  lifecycle,
  { render: () => Promise.resolve({ contentType: "text/plain", body: "" }) },
);
lifecycle
  .add({
    name: "health",
    async start() {
      // In mode `alone`, only the lifecycle holds this process.
      if (mode !== "alone") await server.start();
      say(`port ${server.healthPort}`);
    },
    stop: () => server.stop(),
  })
  .add({ name: "work", stop: () => (mode === "stuck" ? new Promise(() => {}) : undefined) });
if (mode === "throws") {
  systemPorts.timers.after(50, () => {
    throw new Error("from a timer");
  });
}
if (mode === "rejects") systemPorts.timers.after(50, () => void Promise.reject(new Error("from a promise")));
process.exitCode = await lifecycle.run();
