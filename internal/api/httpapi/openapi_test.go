package httpapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files")

// contract is the checked-in OpenAPI document. The SDKs generate their types from it.
const contract = "../../../api/openapi.json"

// TestTheContractIsCheckedIn compares /openapi.json with the document that the SDKs are generated
// from. After a change of the API: go test ./internal/api/httpapi -run TestTheContract -update, then
// make sdk-types.
func TestTheContractIsCheckedIn(t *testing.T) {
	var doc map[string]any
	if err := json.Unmarshal(newBench(t).do("GET", "/openapi.json", "").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	doc["info"].(map[string]any)["version"] = "v1" // the build's version is no part of the contract
	got, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(contract, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(contract)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("api/openapi.json differs from /openapi.json; run this test with -update, then make sdk-types")
	}
}
