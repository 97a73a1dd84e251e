import { runController } from "../run-controller.ts";
import { evictionRetryController } from "./controller.ts";

process.exit(await runController(evictionRetryController));
