import { runController } from "../run-controller.ts";
import { aggregatorController } from "./controller.ts";

process.exit(await runController(aggregatorController));
