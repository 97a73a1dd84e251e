import { expect, test } from "vitest";
import { parseOptions } from "../shared/runtime/options/options.ts";
import { webhookOptions } from "./options.ts";

test.each([
  ["upstream's, which is none", "", ""],
  ["one", "/podseidon", "/podseidon"],
  ["several segments", "/a/b", "/a/b"],
  ["one that ends with a slash", "/a/", undefined],
  ["one without a slash", "a", undefined],
])("a path prefix: %s", async (_, prefix, expected) => {
  const args = ["--core", "core=/kubeconfig", "--cell=a", "--tls-cert-file=/crt", "--tls-private-key-file=/key"];
  const parsed = await parseOptions(webhookOptions, [...args, `--path-prefix=${prefix}`], {}, async () => "");
  expect(parsed.kind === "exit" ? undefined : parsed.values.pathPrefix).toBe(expected);
});

test("a --client-name without a name does not let every certificate in", async () => {
  const args = ["--core", "core=/kubeconfig", "--cell=a", "--tls-cert-file=/crt", "--tls-private-key-file=/key"];
  const parse = async (...more: readonly string[]) =>
    await parseOptions(webhookOptions, [...args, "--client-ca-file=/ca", ...more], {}, async () => "");
  expect(await parse("--client-name=")).toMatchObject({ kind: "exit", text: expect.stringContaining("has no name") });
  expect((await parse()).kind).not.toBe("exit");
});

test.each([
  ["a certificate without its key", ["--probe-client-cert-file=/crt"]],
  ["a key without its certificate", ["--probe-client-key-file=/key"]],
])("for the servers of probes, %s is no identity", async (_, flags) => {
  const args = ["--core", "core=/kubeconfig", "--cell=a", "--tls-cert-file=/crt", "--tls-private-key-file=/key"];
  const parsed = await parseOptions(webhookOptions, [...args, ...flags], {}, async () => "");
  expect(parsed).toMatchObject({ kind: "exit", text: expect.stringContaining("--probe-client-cert-file: ") });
});
