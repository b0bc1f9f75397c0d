package api

import "time"

// AuditHead identifies a line of the audit log, and so all lines before it.
type AuditHead struct {
	Chain string `json:"chain,omitempty" doc:"Chain that has the line; absent: the first one"`
	Seq   uint64 `json:"seq" doc:"Number of the line"`
	Hash  string `json:"hash" doc:"SHA-256 of it, without its newline, in hex"`
}

// AuditProblem is a place where the audit log differs from the original lines.
type AuditProblem struct {
	File string `json:"file" doc:"Name of the file"`
	Line int    `json:"line,omitempty" doc:"Line in it, from 1; absent: it is about the whole file"`
	What string `json:"what" doc:"What is wrong"`
}

// AuditChain is the part of an AuditReport about one chain.
type AuditChain struct {
	Chain   string     `json:"chain,omitempty" doc:"Its name; absent: the first one"`
	Lines   uint64     `json:"lines" doc:"Lines that are there"`
	First   uint64     `json:"first" doc:"Number of the first of them"`
	Last    AuditHead  `json:"last" doc:"The last of them"`
	Dropped uint64     `json:"dropped,omitempty" doc:"Lines 1 to this one are gone: the chain was full"`
	Since   *time.Time `json:"since,omitempty" doc:"Time of the first line that is there, if lines were dropped"`
	Changes bool       `json:"changes" doc:"Whether only changes by authenticated requests rotate the chain"`
	Counted uint64     `json:"counted,omitempty" doc:"Anonymous requests that lines count and that have no line of their own"`
}

// AuditReport is the answer to GET /v1/audit/verify.
type AuditReport struct {
	OK       bool           `json:"ok" doc:"Whether all lines that are there are as they were written"`
	Status   string         `json:"status" enum:"whole,dropped,changed" doc:"whole; dropped: a full chain of changes removed its oldest lines; changed: not what was written"`
	Files    int            `json:"files" doc:"Files that were read"`
	Lines    uint64         `json:"lines" doc:"Lines that are there, of all chains"`
	First    uint64         `json:"first" doc:"Number of the first line of the first chain"`
	Last     AuditHead      `json:"last" doc:"The last line of the first chain: note it elsewhere, and a later verification can be held against it"`
	Dropped  uint64         `json:"dropped" doc:"Lines up to this one the first chain has removed, being the oldest"`
	Lost     uint64         `json:"lost" doc:"Actions that the disk did not take, as the lines tell"`
	Torn     int            `json:"torn" doc:"Lines that were not written whole, and are told of"`
	Pending  bool           `json:"pending" doc:"The last line is being written, or was when its daemon ended"`
	Problems []AuditProblem `json:"problems" doc:"What is wrong"`
	Chains   []AuditChain   `json:"chains" doc:"All chains, the first one first"`
}
