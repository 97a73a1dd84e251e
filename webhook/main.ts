/** The webhook process opens its port, then loads `run.ts`. Read `handler.ts` next, for the path of one request. */
import { sleep } from "../shared/runtime/clock.ts";
import { commandLine } from "../shared/runtime/options/command-line.ts";
import { systemPorts } from "../shared/runtime/system-ports.ts";
import { WebhookServer } from "./http/server.ts";
import { CertificateError, readServingCertificate, type ServingCertificate } from "./http/serving-certificate.ts";
import { CHECK_CALLERS_EVERY_MS } from "./http/slow-callers.ts";
import { type WebhookFlags, webhookOptions } from "./options.ts";

/** Long enough for a handshake, short against the load of `run.ts`. */
const FIRST_RESPONSES_MS = 10;
/** The configuration names something that is missing or unusable. */
const EXIT_CONFIGURATION = 2;

function certificateOrExit(options: WebhookFlags): ServingCertificate {
  try {
    return readServingCertificate(options);
  } catch (error) {
    if (!(error instanceof CertificateError)) throw error;
    process.stderr.write(`podseidon-webhook: ${error.message}\n`);
    process.exit(EXIT_CONFIGURATION);
  }
}

async function checkCallers(): Promise<never> {
  for (;;) {
    await sleep(systemPorts, CHECK_CALLERS_EVERY_MS);
    server.slowCallers.check();
  }
}

async function secretPaths(file: string): Promise<((segment: string) => boolean) | undefined> {
  return file === "" ? undefined : (await import("./http/secret-path.ts")).secretPathsOrExit(file, systemPorts.clock);
}

const options = await commandLine(webhookOptions);
// The port answers before the rest of the program is loaded: an apiserver that finds no listener waits for its timeout,
// and one that gets 503 applies its failurePolicy at once.
const server = new WebhookServer({
  certificate: certificateOrExit(options),
  pathPrefix: options.pathPrefix,
  cells: new Set(options.cell.map(({ name }) => name)),
  clientNames: options.clientName,
  isPathKnown: await secretPaths(options.secretPathFile),
});
try {
  await server.listen(options.securePort, options.bindAddress === "" ? undefined : options.bindAddress);
} catch (error) {
  process.stderr.write(`podseidon-webhook: ${String(error)}; choose another --secure-port or --bind-address\n`);
  process.exit(EXIT_CONFIGURATION);
}
void checkCallers();
// Loading the rest blocks the event loop, so apiservers that are already connecting get a response first.
await sleep(systemPorts, FIRST_RESPONSES_MS);
const { run } = await import("./run.ts");
process.exitCode = await run(options, server);
process.exit();
