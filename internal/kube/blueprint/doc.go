// Package blueprint reads the pod template of a Sandbox or a SandboxTemplate, and finds the snapshot to fork. It
// refuses
// each field without a meaning for a VM by its path, and ignores none of them. It calls no API. The trap: templates are
// written by users of a namespace, so every field is hostile.
package blueprint
