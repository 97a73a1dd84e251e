/** The CA injector against a cluster that is a table of objects. */
import { expect, test } from "vitest";
import {
  cellKey,
  PUBLISHED_CONFIG_MAP,
  PUBLISHED_KEY,
  TRUSTED_CONFIG_MAP,
} from "../../../shared/certificates/ca-bundle.ts";
import { createCertificateAuthority } from "../../../shared/certificates/x509.ts";
import { ApiClient } from "../../../shared/kube/client/api-client.ts";
import type { ApiRequest, ApiResponse, ApiStream, Transport } from "../../../shared/kube/client/transport.ts";
import { JSON_TYPE, ScriptedStream } from "../../../test/support/kube/scripted-transport.ts";
import { VirtualTime } from "../../../test/support/runtime/virtual-ports.ts";
import { CaInjector, type CaInjectorEvent } from "./ca-injector.ts";
import { encodeCaBundle } from "./desired-configuration.ts";

const VALID = { notBeforeMs: 0, notAfterMs: Date.UTC(2100, 0, 1) };
const PEM = `${(await createCertificateAuthority({ ...VALID, commonName: "test" })).certificatePem.trim()}\n`;
const UNREADABLE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
const CELL = "cell";
const VALIDATING = "validatingwebhookconfigurations/podseidon";
const MUTATING = "mutatingwebhookconfigurations/podseidon";
const GATE = "mutatingwebhookconfigurations/podseidon-gate";

interface StoredConfiguration {
  readonly metadata: { readonly name: string; readonly uid: string; resourceVersion: string };
  readonly webhooks: { readonly name: string; clientConfig: { caBundle?: string; service?: unknown; url?: string } }[];
}

/** Webhook configurations by plural and name, and the acknowledgements that the publisher got. */
class TableOfObjects implements Transport {
  readonly configurations = new Map<string, StoredConfiguration>();
  readonly acknowledgements: unknown[] = [];
  published = PEM;
  readonly #streams: { readonly of: string; readonly stream: ScriptedStream }[] = [];
  #version = 100;

  put(path: string): void {
    const name = path.split("/")[1] ?? "";
    const metadata = { name, uid: `uid-${name}`, resourceVersion: String(++this.#version) };
    this.configurations.set(path, {
      metadata,
      webhooks: [
        { name: "one", clientConfig: { service: { name: "w", path: "/webhook/cell" } } },
        { name: "two", clientConfig: { url: "https://w:8443/webhook/cell/mutate" } },
      ],
    });
    this.#notify("ADDED", path);
  }

  bundles(path: string): (string | undefined)[] {
    return (this.configurations.get(path)?.webhooks ?? []).map(({ clientConfig }) => clientConfig.caBundle);
  }

  async request({ method, path, body = "" }: ApiRequest): Promise<ApiResponse> {
    const [where = "", query] = path.split("?");
    if (where.endsWith(PUBLISHED_CONFIG_MAP)) return answer({ data: { [PUBLISHED_KEY]: this.published } });
    if (where.endsWith(TRUSTED_CONFIG_MAP)) {
      this.acknowledgements.push(JSON.parse(body));
      return answer({});
    }
    const plural = where.split("/").at(-1) ?? "";
    if (method === "GET") {
      const found = this.configurations.get(`${plural}/${nameIn(query)}`);
      const items = found === undefined ? [] : [found];
      return answer({ metadata: { resourceVersion: String(this.#version) }, items });
    }
    const key = where.split("/").slice(-2).join("/");
    const found = this.configurations.get(key);
    if (found === undefined) throw new Error(`there is no ${key}`);
    for (const { op, path: pointer, value } of JSON.parse(body)) {
      const index = /^\/webhooks\/(\d+)\/clientConfig$/.exec(pointer)?.[1];
      const webhook = found.webhooks[Number(index)];
      if (op === "replace" && webhook !== undefined) webhook.clientConfig = value;
    }
    found.metadata.resourceVersion = String(++this.#version);
    this.#notify("MODIFIED", key);
    return answer(found);
  }

  async stream({ path, signal }: ApiRequest): Promise<ApiStream> {
    const [where = "", query] = path.split("?");
    const stream = new ScriptedStream();
    this.#streams.push({ of: `${where.split("/").at(-1)}/${nameIn(query)}`, stream });
    return { status: 200, headers: JSON_TYPE, chunks: stream.read(signal), close: () => {} };
  }

  close(): void {}

  #notify(type: string, path: string): void {
    const object = structuredClone(this.configurations.get(path));
    for (const { of, stream } of this.#streams) if (of === path) stream.event(type, object);
  }
}

function nameIn(query: string | undefined): string {
  return new URLSearchParams(query).get("fieldSelector")?.replace("metadata.name=", "") ?? "";
}

function answer(body: unknown): ApiResponse {
  return { status: 200, headers: {}, body: JSON.stringify(body) };
}

function start() {
  const time = new VirtualTime();
  const cell = new TableOfObjects();
  for (const path of [VALIDATING, MUTATING]) cell.put(path);
  const events: CaInjectorEvent[] = [];
  const injector = new CaInjector({
    cellID: CELL,
    transport: cell,
    api: new ApiClient(cell),
    publisher: new ApiClient(cell),
    namespace: "podseidon-system",
    name: "podseidon",
    ports: time,
    intervalMs: 1_000,
    timeoutMs: 1_000,
    mayWrite: () => true,
    onEvent: (event) => events.push(event),
    onWatchEvent: () => {},
  });
  return { time, cell, events, injector };
}

test("both webhook configurations get the published authority, and the counted gate's once it appears", async () => {
  const { time, cell, events, injector } = start();
  const end = new AbortController();
  const running = injector.run(end.signal);
  const trusted = [encodeCaBundle(PEM), encodeCaBundle(PEM)];

  await time.advance(2_000);
  expect(cell.bundles(VALIDATING)).toEqual(trusted);
  expect(cell.bundles(MUTATING)).toEqual(trusted);
  expect(injector.isTrusting).toBe(true);
  expect(cell.acknowledgements).toEqual([{ data: { [cellKey(CELL)]: expect.any(String) } }]);

  cell.put(GATE);
  await time.advance(2_000);
  expect(cell.bundles(GATE)).toEqual(trusted);
  expect(injector.isTrusting).toBe(true);
  expect(events.map(({ kind }) => kind)).toEqual(["injected", "injected", "acknowledged", "injected"]);

  end.abort();
  await time.advance(10_000);
  await running;
});

test.each([
  ["emptied", ""],
  ["filled with garbage", "garbage"],
  ["a certificate that can't be read", UNREADABLE],
  ["one that can't be read beside the authority", PEM + UNREADABLE],
])("what is published and can't be used is told of, and the last authority stays: %s", async (_, text) => {
  const { time, cell, events, injector } = start();
  const end = new AbortController();
  const running = injector.run(end.signal);
  await time.advance(2_000);
  cell.published = text;
  await time.advance(2_000);
  cell.put(VALIDATING);
  await time.advance(2_000);
  expect(cell.bundles(VALIDATING)).toEqual([encodeCaBundle(PEM), encodeCaBundle(PEM)]);
  expect(events).toContainEqual({
    ...{ kind: "failed", what: PUBLISHED_CONFIG_MAP, tag: "unavailable" },
    message: expect.stringMatching(/ca\.crt has (no certificate|a certificate that can't be read)/),
  });
  end.abort();
  await time.advance(10_000);
  await running;
});
