// Lists of the API: iterate over all entries, or read one page.

export interface Page<Item> {
  items: Item[];
  nextCursor: string | null;
}

export interface PageOptions {
  /** Entries of one page: 1 to 200. */
  limit?: number;
  cursor?: string;
  signal?: AbortSignal;
}

export class List<Item> implements AsyncIterable<Item> {
  readonly #read: (options: PageOptions) => Promise<Page<Item>>;
  readonly #options: PageOptions;

  constructor(read: (options: PageOptions) => Promise<Page<Item>>, options: PageOptions = {}) {
    this.#read = read;
    this.#options = options;
  }

  /** One page. It may be short, even empty, while `nextCursor` is set. */
  page(options: PageOptions = {}): Promise<Page<Item>> {
    return this.#read({ ...this.#options, ...options });
  }

  async *[Symbol.asyncIterator](): AsyncIterator<Item> {
    let cursor = this.#options.cursor;
    do {
      const page = await this.page(cursor === undefined ? {} : { cursor });
      yield* page.items;
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** All entries. */
  async all(): Promise<Item[]> {
    const items: Item[] = [];
    for await (const item of this) items.push(item);
    return items;
  }
}
