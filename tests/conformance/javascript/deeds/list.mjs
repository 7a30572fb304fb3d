import assert from "node:assert/strict";

const names = ({ items }) => items.map(({ metadata }) => metadata.name);

export async function pagesLabelsAndFields({ core, namespace }) {
  for (const name of "abcde") {
    const metadata = { name, labels: { vowel: String("ae".includes(name)) } };
    await core.createNamespacedSecret({ namespace, body: { metadata } });
  }
  const page = await core.listNamespacedSecret({ namespace, limit: 3 });
  assert.deepEqual([names(page), page.metadata.remainingItemCount], [["a", "b", "c"], 2]);
  const { _continue } = page.metadata;
  const rest = await core.listNamespacedSecret({ namespace, limit: 3, _continue });
  assert.deepEqual(names(rest), ["d", "e"]);
  const vowels = await core.listNamespacedSecret({ namespace, labelSelector: "vowel=true" });
  assert.deepEqual(names(vowels), ["a", "e"]);
  const one = await core.listNamespacedSecret({ namespace, fieldSelector: "metadata.name=c" });
  assert.deepEqual(names(one), ["c"]);
}
