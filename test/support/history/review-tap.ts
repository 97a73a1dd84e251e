/**
 * A tap between the apiservers and the webhooks, in a thread of its own: the handshakes of a burst of reviews must not
 * wait for the test, nor the test for them. `tap-server.ts` is what runs there.
 */
import { once } from "node:events";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import * as v from "valibot";

export interface TapOptions {
  readonly target: { readonly host: string; readonly port: number };
  readonly certificatePem: string;
  readonly privateKeyPem: string;
}

const MomentSchema = v.object({ history: v.number(), revision: v.number() });
const MessageSchema = v.object({ head: v.string(), body: v.string() });
const TappedSchema = v.object({
  from: MomentSchema,
  fromMs: v.number(),
  toMs: v.number(),
  request: MessageSchema,
  response: v.optional(MessageSchema),
});

/** A request, what was known when its first byte came, and its response, if it had one. */
export type TappedRequest = v.InferOutput<typeof TappedSchema>;

export class ReviewTap implements AsyncDisposable {
  readonly port: number;
  readonly #worker: Worker;

  private constructor(worker: Worker, port: number) {
    this.#worker = worker;
    this.port = port;
  }

  /** `position` has the history and the revision that are known, and may change; see {@link EtcdStream}. */
  static async start(
    options: TapOptions,
    position: Float64Array<SharedArrayBuffer>,
    onRequest: (request: TappedRequest) => void,
  ): Promise<ReviewTap> {
    const worker = new Worker(join(import.meta.dirname, "tap-server.ts"), { workerData: { ...options, position } });
    const [port] = await once(worker, "message");
    worker.on("message", (tapped) => onRequest(v.parse(TappedSchema, tapped)));
    return new ReviewTap(worker, v.parse(v.number(), port));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#worker.terminate();
  }
}
