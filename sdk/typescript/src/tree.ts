export async function* pack(_: string): AsyncGenerator<Uint8Array> {}
export async function unpack(_: AsyncIterable<Uint8Array>, __: string): Promise<void> {}
