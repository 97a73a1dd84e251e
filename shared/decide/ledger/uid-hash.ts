import { hash } from "node:crypto";

/**
 * 64 bits of a hash of a pod's UID, as 8 Latin-1 characters: what the packed form keeps of a UID (design 5.5). Together with the
 * pod's name it identifies a pod; UIDs are made by the apiserver, so nobody can choose two that collide.
 */
export const UID_HASH_BYTES = 8;

/** Remembered hashes, because an aggregator asks for the same pods at each reconcile. */
const MEMO_LIMIT = 16_384;
const memo = new Map<string, string>();

export function hashUid(uid: string): string {
  const known = memo.get(uid);
  if (known !== undefined) return known;
  const text = hash("sha256", uid, "buffer").toString("latin1", 0, UID_HASH_BYTES);
  if (memo.size >= MEMO_LIMIT) memo.clear();
  memo.set(uid, text);
  return text;
}
