/** `kubectl podseidon`: the process. */
import { MessageChannel } from "node:worker_threads";
import { systemPorts } from "../../shared/runtime/system-ports.ts";
import { runCommandLine } from "./cli.ts";
import { takesColour } from "./invocation/colour.ts";
import { EXIT } from "./invocation/errors.ts";

// A reader that has ended, such as `head`, needs no more output.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") process.stderr.write(`error: standard output: ${error.message}\n`);
  process.exit(EXIT.unknown);
});

// A caller that has closed standard error still gets the exit code.
process.stderr.on("error", () => {});

// A credential plugin that still runs is ended at the exit, which a signal alone would skip.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
  process.once(signal, () => {
    process.emit("exit", EXIT.unknown);
    process.kill(process.pid, signal);
  });
// Keeps the process alive, because the timers of the ports, which a command waits for, do not.
const { port1 } = new MessageChannel();
port1.on("message", () => {});

const code = await runCommandLine(process.argv.slice(2), {
  terminal: {
    out: (text) => void process.stdout.write(text),
    err: (text) => void process.stderr.write(text),
    interactive: process.stderr.isTTY === true,
    width: () => process.stderr.columns,
    colours: takesColour(process.stdout.isTTY === true, process.env),
  },
  ports: systemPorts,
  environment: process.env,
});
port1.close();
process.exitCode = code;
