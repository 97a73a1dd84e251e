import { sleep } from "../shared/runtime/clock.ts";
import { commandLine } from "../shared/runtime/options/command-line.ts";
import { systemPorts } from "../shared/runtime/system-ports.ts";
import { WebhookServer } from "./http/server.ts";
import {
  CertificateError,
  certificateFiles,
  readServingCertificate,
  type ServingCertificate,
} from "./http/serving-certificate.ts";
import { CHECK_CALLERS_EVERY_MS } from "./limits.ts";
import { type WebhookFlags, webhookOptions } from "./options.ts";

/** Long enough for a handshake, short against what follows. */
const FIRST_ANSWERS_MS = 10;
/** The configuration can't be used: what it names is not there or not as it should be. */
const EXIT_CONFIGURATION = 2;

function certificateOrExit(options: WebhookFlags): ServingCertificate {
  try {
    return readServingCertificate(certificateFiles(options));
  } catch (error) {
    if (!(error instanceof CertificateError)) throw error;
    process.stderr.write(`podseidon-webhook: ${error.message}\n`);
    process.exit(EXIT_CONFIGURATION);
  }
}

/** Goes on until the process ends. */
async function lookAtCallers(): Promise<never> {
  for (;;) {
    await sleep(systemPorts, CHECK_CALLERS_EVERY_MS);
    server.slowCallers.look();
  }
}

const options = await commandLine(webhookOptions);
// The port is open, and answered, before the rest of the program is even loaded: an apiserver that finds no listener waits for
// its timeout, one that is told 503 goes by its failurePolicy at once.
const server = new WebhookServer({
  certificate: certificateOrExit(options),
  pathPrefix: options.pathPrefix,
  cells: new Set(options.cell.map(({ name }) => name)),
});
try {
  await server.listen(options.securePort, options.bindAddress === "" ? undefined : options.bindAddress);
} catch (error) {
  const address = `${options.bindAddress === "" ? "" : options.bindAddress}:${options.securePort}`;
  const detail = error instanceof Error ? error.message : String(error);
  process.stderr.write(`podseidon-webhook: cannot listen on ${address} (${detail}): choose another --secure-port\n`);
  process.exit(EXIT_CONFIGURATION);
}
void lookAtCallers();
// Loading the rest holds the event loop: who is connecting already gets an answer first.
await sleep(systemPorts, FIRST_ANSWERS_MS);
const { run } = await import("./run.ts");
process.exitCode = await run(options, server);
process.exit();
