package api

import "time"

// AuditHead identifies a line of the audit log, and so all lines before it.
type AuditHead struct {
	Chain string `json:"chain,omitempty" doc:"Chain of the line; absent: the first one"`
	Seq   uint64 `json:"seq" doc:"Number of the line"`
	Hash  string `json:"hash" doc:"SHA-256 of it, without its newline, in hex"`
}

// AuditProblem is a place where the audit log differs from the original lines.
type AuditProblem struct {
	File string `json:"file" doc:"Name of the file"`
	Line int    `json:"line,omitempty" doc:"Line in it, from 1; absent: it is about the whole file"`
	What string `json:"what" doc:"Description of the problem"`
}

// AuditChain is the part of an AuditReport about one chain.
type AuditChain struct {
	Chain   string     `json:"chain,omitempty" doc:"Its name; absent: the first one"`
	Lines   uint64     `json:"lines" doc:"Number of lines"`
	First   uint64     `json:"first" doc:"Number of the first of them"`
	Last    AuditHead  `json:"last" doc:"The last of them"`
	Dropped uint64     `json:"dropped,omitempty" doc:"Lines 1 to this one are gone: the chain was full"`
	Since   *time.Time `json:"since,omitempty" doc:"Time of the first remaining line, if lines were dropped"`
	Changes bool       `json:"changes" doc:"Whether only changes by authenticated requests rotate the chain"`
	Counted uint64     `json:"counted,omitempty" doc:"Anonymous requests counted by lines, without their own line"`
}

// AuditReport is the answer to GET /v1/audit/verify.
type AuditReport struct {
	OK       bool           `json:"ok" doc:"Whether all remaining lines are unchanged"`
	Status   string         `json:"status" enum:"whole,dropped,changed" doc:"whole; dropped: rotation removed the oldest lines of the changes; changed: lines differ from the written ones"`
	Files    int            `json:"files" doc:"Files read"`
	Lines    uint64         `json:"lines" doc:"Number of lines of all chains"`
	First    uint64         `json:"first" doc:"Number of the first line of the first chain"`
	Last     AuditHead      `json:"last" doc:"The last line of the first chain: note it elsewhere, and a later verification can be held against it"`
	Dropped  uint64         `json:"dropped" doc:"Lines up to this one the first chain has removed, being the oldest"`
	Lost     uint64         `json:"lost" doc:"Actions lost because the disk was full or failed, as recorded in later lines"`
	Torn     int            `json:"torn" doc:"Incomplete lines that a later line records"`
	Pending  bool           `json:"pending" doc:"The last line is being written, or was when its daemon ended"`
	Problems []AuditProblem `json:"problems" doc:"Description of the problem"`
	Chains   []AuditChain   `json:"chains" doc:"All chains, the first one first"`
}
