package hints

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/forkd/forkd/api"
)

var update = flag.Bool("update", false, "rewrite golden files")

// contract is the checked-in table of errors. The SDKs generate their exception classes and their
// advice from it.
const contract = "../../../api/errors.json"

type codeEntry struct {
	Code    api.Code `json:"code"`
	Status  int      `json:"status"` // of the HTTP response; 0 for codes of no response
	Exit    int      `json:"exit"`   // of the CLI
	Meaning string   `json:"meaning"`
	Hint    string   `json:"hint,omitempty"`
}

type reasonEntry struct {
	Reason  api.Reason `json:"reason"`
	Meaning string     `json:"meaning"`
	Hint    string     `json:"hint,omitempty"` // {name} stands for a detail of the error
}

// TestTheTableOfErrorsIsCheckedIn compares the tables of this build with the one that the SDKs are
// generated from. After a change: go test ./cmd/internal/hints -update, then make sdk-types.
func TestTheTableOfErrorsIsCheckedIn(t *testing.T) {
	var table struct {
		Codes   []codeEntry   `json:"codes"`
		Reasons []reasonEntry `json:"reasons"`
	}
	for _, row := range api.Codes() {
		table.Codes = append(table.Codes, codeEntry{row.Code, row.Status, row.Exit, row.Meaning, byCode()[row.Code]})
	}
	for _, row := range api.Reasons() {
		table.Reasons = append(table.Reasons, reasonEntry{row.Reason, row.Meaning, byReason()[row.Reason]})
	}
	var got bytes.Buffer
	enc := json.NewEncoder(&got)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(table); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(contract, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(contract)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("api/errors.json differs from the tables of errors; run this test with -update, then make sdk-types")
	}
}
