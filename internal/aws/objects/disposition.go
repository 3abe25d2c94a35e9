package objects

import (
	"fmt"
	"strings"
)

// maxFilename bounds a suggested name, in bytes of its text: file systems take
// no longer one, and a URL carries each byte as up to nine characters.
const maxFilename = 255

// disposition is a Content-Disposition that suggests a name (RFC 6266). The name
// is a stranger's data: it is given twice, as ASCII in which everything that
// could end or continue the quoted text is an underscore, and percent-encoded
// (RFC 8187) for those who understand that, which is nearly everybody.
func disposition(filename string) string {
	filename = clip(strings.ToValidUTF8(filename, "_"))
	if filename == "" {
		return "attachment"
	}
	var plain, encoded strings.Builder
	for _, r := range filename {
		if r < ' ' || r > '~' || strings.ContainsRune(`"\%/;`, r) {
			r = '_'
		}
		plain.WriteRune(r)
	}
	for _, b := range []byte(filename) {
		if attrChar(b) {
			encoded.WriteByte(b)
		} else {
			fmt.Fprintf(&encoded, "%%%02X", b)
		}
	}
	return fmt.Sprintf(`attachment; filename="%s"; filename*=UTF-8''%s`, plain.String(), encoded.String())
}

// clip cuts a name between two characters.
func clip(name string) string {
	if len(name) <= maxFilename {
		return name
	}
	return strings.ToValidUTF8(name[:maxFilename], "")
}

// attrChar reports whether RFC 8187 lets b stand for itself.
func attrChar(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || strings.IndexByte("!#$&+-.^_`|~", b) >= 0
}
