package api

// KeepRequest is the body of POST /v1/sandboxes/keep. It names the sandboxes by IDs or Of, and the
// score by Args or File.
type KeepRequest struct {
	IDs         []string `json:"ids,omitempty" doc:"The sandboxes, at most 1000; instead of of" maxItems:"1000"`
	Of          string   `json:"of,omitempty" doc:"A snapshot, or a sandbox: its children are compared, also those of the sandbox's branches; instead of ids" maxLength:"64"`
	Best        int      `json:"best" doc:"How many to keep of those that have a score" minimum:"1"`
	Args        []string `json:"args,omitempty" doc:"Program that prints the score and its arguments, run in each; the first line of its output is the number" maxItems:"4096"`
	File        string   `json:"file,omitempty" doc:"File in the guest with the score in its first line; instead of args" maxLength:"4096"`
	Lowest      bool     `json:"lowest,omitempty" doc:"Keep the lowest scores, not the highest"`
	TimeoutSecs float64  `json:"timeout_secs,omitempty" doc:"Limit for each score; 0 means 60" minimum:"0" maximum:"86400"`
	EndUnscored bool     `json:"end_unscored,omitempty" doc:"End sandboxes without a score too, if any other has one"`
	DryRun      bool     `json:"dry_run,omitempty" doc:"Score them, and end none"`
}

// KeepOutcome is the fate of a compared sandbox.
type KeepOutcome string

const (
	KeepKept  KeepOutcome = "kept"
	KeepEnded KeepOutcome = "ended"
	KeepGone  KeepOutcome = "gone"
)

// KeepResult is the result of a comparison.
type KeepResult struct {
	Sandboxes []KeepEntry `json:"sandboxes" doc:"The best first; equal scores in the order of ids, or by age; those without a score last" nullable:"false"`
	Kept      int         `json:"kept" doc:"How many are kept, those without a score included"`
	Ended     int         `json:"ended" doc:"How many were ended; in a dry run how many would be"`
	Unscored  int         `json:"unscored" doc:"How many have no score"`
	DryRun    bool        `json:"dry_run,omitempty" doc:"None was ended"`
}

// KeepEntry is the result for one sandbox.
type KeepEntry struct {
	ID      string      `json:"id" doc:"Name of the sandbox"`
	Score   *float64    `json:"score" doc:"Its score; null if it has none"`
	Outcome KeepOutcome `json:"outcome" doc:"kept; ended; or gone: another request ended it meanwhile. In a dry run what would happen" enum:"kept,ended,gone"`
	Problem string      `json:"problem,omitempty" doc:"Why it has no score, or could not be ended"`
}
