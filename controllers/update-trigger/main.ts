import { runController } from "../run-controller.ts";
import { updateTriggerController } from "./controller.ts";

process.exit(await runController(updateTriggerController));
