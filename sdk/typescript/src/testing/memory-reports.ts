// Stores the work of a handler in memory, for tests without a server.

import type { ProgressReport, Reports } from "../worker/reports.js";
import type { UploadOptions, UploadSource, Uploaded } from "../worker/upload.js";

export interface StoredUpload {
  bytes: Uint8Array;
  filename: string | undefined;
  contentType: string | undefined;
}

/** An event of the run, in order; the kind and the count name it: "section 3". */
export type ReportKind = "section" | "checkpoint" | "output" | "progress" | "upload";

export class MemoryReports implements Reports {
  readonly sections: Map<string, string>;
  readonly progressReports: ProgressReport[] = [];
  outputText = "";
  checkpointText: string | undefined;
  uploaded: StoredUpload | undefined;
  readonly #counts = new Map<ReportKind, number>();
  readonly #onReport: (name: string, kind: ReportKind) => void;

  constructor(sections: Map<string, string>, onReport: (name: string, kind: ReportKind) => void) {
    this.sections = sections;
    this.#onReport = onReport;
  }

  async saveSection(name: string, text: string): Promise<void> {
    this.sections.set(name, text);
    this.#count("section");
  }

  async loadSections(): Promise<Map<string, string>> {
    return new Map(this.sections);
  }

  async saveCheckpoint(text: string, schemaVersion: number): Promise<void> {
    this.checkpointText = `{"schemaVersion":${schemaVersion},"data":${text}}`;
    this.#count("checkpoint");
  }

  async loadCheckpointBlob(): Promise<string> {
    throw new Error("a checkpoint in memory has no blob");
  }

  async output(text: string): Promise<void> {
    this.outputText += text;
    this.#count("output");
  }

  progress(report: ProgressReport): void {
    this.progressReports.push({ ...report });
    this.#count("progress");
  }

  async upload(source: UploadSource, { filename, contentType }: UploadOptions): Promise<Uploaded> {
    const bytes = await bytesOf(source);
    this.uploaded = { bytes, filename, contentType };
    this.#count("upload");
    return { accepted: true, length: bytes.length, filename, contentType } as unknown as Uploaded;
  }

  #count(kind: ReportKind): void {
    const count = (this.#counts.get(kind) ?? 0) + 1;
    this.#counts.set(kind, count);
    this.#onReport(`${kind} ${count}`, kind);
  }
}

async function bytesOf(source: UploadSource): Promise<Uint8Array> {
  if (typeof source === "string") {
    const { readFile } = await import("node:fs/promises");
    return readFile(source);
  }
  return new Uint8Array(await new Response(source as BodyInit).arrayBuffer());
}
