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
  ["--probe-client-cert-file", "--probe-client-key-file"],
  ["--probe-client-key-file", "--probe-client-cert-file"],
])("%s needs %s", async (given, missing) => {
  const args = ["--core", "core=/kubeconfig", "--cell=a", "--tls-cert-file=/crt", "--tls-private-key-file=/key"];
  const parse = async (...more: readonly string[]) =>
    await parseOptions(webhookOptions, [...args, `${given}=/a`, ...more], {}, async () => "");
  expect(await parse()).toMatchObject({ kind: "exit", text: expect.stringContaining(missing) });
  expect((await parse(`${missing}=/b`)).kind).not.toBe("exit");
});
