import { expect, test } from "vitest";
import { flagsText, withFlags } from "./printed-commands.ts";

test("the commands of a text get flags of their own, and nothing else does", () => {
  const text = "run kubectl get pods, or kubectl podseidon status NAME; kubectl-podseidon is on the PATH, as kubectl";
  expect(withFlags(text, " -a", " -b")).toBe(
    "run kubectl -b get pods, or kubectl podseidon -a status NAME; kubectl-podseidon is on the PATH, as kubectl",
  );
});

test("a command that gives a cluster an account gets the flags that name both clusters", () => {
  expect(withFlags("kubectl podseidon join b, kubectl podseidon status", " -a", " -b", " -s", " -c")).toBe(
    "kubectl podseidon -c -s join b, kubectl podseidon -a status",
  );
});

test("a value with other characters than a name has is quoted for the shell", () => {
  const flags = { context: "arn:aws:eks:eu-west-1:1:cluster/a", kubeconfig: "it's mine", namespace: undefined };
  expect(flagsText(flags)).toBe(" --context arn:aws:eks:eu-west-1:1:cluster/a --kubeconfig 'it'\\''s mine'");
});
