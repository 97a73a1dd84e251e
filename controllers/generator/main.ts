/** The generator as a process: options, access to the core cluster, life and observation. */
import { run } from "./run.ts";

process.exitCode = await run();
process.exit();
