/** `kubectl podseidon doctor` in the demo's installation: only ok. */
import { delimiter, join } from "node:path";
import { messageOf } from "../../shared/runtime/errors.ts";
import { type KubectlResult, runKubectl } from "../control-plane/kubectl.ts";
import type { DemoStage } from "./stage.ts";

type Examination = Pick<KubectlResult, "code" | "stdout">;

/** Shows the findings once all are ok, or at the end of the time limit. */
export async function examine(stage: DemoStage, bundles: string): Promise<void> {
  const { core, workers, narrator } = stage;
  const names = workers.map(({ name }) => name);
  const args = [join(bundles, "kubectl-podseidon.mjs"), "doctor", "--core-context", core.name, ...names];
  const kubeconfig = [core, ...workers].map(({ kubeconfig }) => kubeconfig).join(delimiter);
  let last: Examination = { code: -1, stdout: "" };
  narrator.heading("Is the installation in order?");
  narrator.command(`kubectl podseidon ${args.slice(1).join(" ")}`);
  try {
    await stage.until("the installation to be in order", async () => {
      last = await runKubectl(process.execPath, args, { kubeconfig });
      return isInOrder(last);
    });
  } catch (error) {
    narrator.say(messageOf(error));
  }
  narrator.quote(last.stdout);
  stage.promise(isInOrder(last), "doctor finds nothing but ok");
}

const isInOrder = ({ code, stdout }: Examination): boolean => code === 0 && !/^(FAIL|WARN|\?) /m.test(stdout);
