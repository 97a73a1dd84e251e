import { runController } from "../run-controller.ts";
import { certificatesController } from "./controller.ts";

process.exit(await runController(certificatesController));
