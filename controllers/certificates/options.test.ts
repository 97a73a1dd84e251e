import { expect, test } from "vitest";
import { parseOptions } from "../../shared/runtime/options/options.ts";
import { certificatesOptions } from "./controller.ts";

/** What the process prints before it ends; empty when it runs. */
async function refusal(name: string): Promise<string> {
  const parsed = await parseOptions(certificatesOptions, [`--dns-name=${name}`], {}, async () => "");
  return parsed.kind === "exit" ? `${parsed.code}: ${parsed.text}` : "";
}

test.each([
  ["a port", "webhook.example.com:443"],
  ["a scheme", "https://webhook.example.com"],
  ["brackets", "[::1]"],
  ["a zone", "fe80::1%eth0"],
  ["a letter that no certificate has", "webhook.münchen.example"],
  ["a last dot", "webhook.example.com."],
])("a name with %s is refused: no certificate would ever be for it", async (_, name) => {
  expect(await refusal(name)).toMatch(/^2: .*--dns-name: .*names and IP addresses, without a port/s);
});

test.each([
  "podseidon-webhook.podseidon-system.svc",
  "localhost",
  "*.example.com",
  "10.0.0.1",
  "::1",
  "2001:db8::1",
  "::ffff:10.0.0.1",
  "a_b.example.com, 10.0.0.1,",
])("%s is a name", async (name) => {
  expect(await refusal(name)).toBe("");
});
