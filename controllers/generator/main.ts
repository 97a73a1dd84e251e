import { runController } from "../run-controller.ts";
import { generatorController } from "./controller.ts";

process.exit(await runController(generatorController));
