//! Reads lists of objects. The answers are XML of a fixed form: elements are found by their names, and keys come
//! percent-encoded, as they were asked for.

/// An object of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The whole key.
    pub key: String,
    /// The size of the object.
    pub bytes: u64,
}

/// Objects and prefixes under a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Objects below no common prefix.
    pub objects: Vec<Object>,
    /// Prefixes that several have in common, up to the delimiter, which is their end.
    pub prefixes: Vec<String>,
}

/// Reads a page of a list: its entries, and the token of the next page, if there is one.
pub(super) fn page(body: &str) -> Option<(Listed, Option<String>)> {
    let result = elements(body, "ListBucketResult").next()?;
    let object = |contents: &str| {
        let key = decode(&text_of(contents, "Key")?)?;
        Some(Object { key, bytes: text_of(contents, "Size")?.parse().ok()? })
    };
    let objects = elements(result, "Contents").map(object).collect::<Option<_>>()?;
    let prefixes = elements(result, "CommonPrefixes").map(|it| decode(&text_of(it, "Prefix")?));
    let listed = Listed { objects, prefixes: prefixes.collect::<Option<_>>()? };
    let is_cut = text_of(result, "IsTruncated").is_some_and(|it| it == "true");
    let next = text_of(result, "NextContinuationToken");
    // Refuse a cut page that does not say where the list goes on.
    if is_cut && next.is_none() {
        return None;
    }
    Some((listed, next.filter(|_| is_cut)))
}

/// Contents of the elements with this name, in order. No element that is read here nests in itself.
fn elements<'a>(text: &'a str, tag: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let behind = &rest[rest.find(&open)? + open.len()..];
            rest = behind;
            // The name may be the beginning of a longer one.
            if !behind.starts_with(['>', ' ', '\t', '\r', '\n', '/']) {
                continue;
            }
            let (attributes, behind) = behind.split_once('>')?;
            if attributes.ends_with('/') {
                rest = behind;
                return Some("");
            }
            let (inner, behind) = behind.split_once(&close)?;
            rest = behind;
            return Some(inner);
        }
    })
}

/// The text of the first element of a name.
pub(super) fn text_of(text: &str, tag: &str) -> Option<String> {
    let raw = elements(text, tag).next()?.trim();
    // Some send texts as they are, marked as such.
    if let Some(literal) = raw.strip_prefix("<![CDATA[").and_then(|it| it.strip_suffix("]]>")) {
        return Some(literal.to_owned());
    }
    let mut plain = raw.to_owned();
    // The sign itself last, so that nothing is replaced twice.
    for (entity, it) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&apos;", "'"),
        ("&#39;", "'"),
    ] {
        plain = plain.replace(entity, it);
    }
    Some(plain.replace("&amp;", "&"))
}

/// Percent-encoded text; nothing if it is not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_with_what_comes_behind_it() {
        let body = "<?xml version='1.0'?><ListBucketResult xmlns=\"http://s3\"><Name>b</Name><Prefix>p/</Prefix>\
            <KeyCount>2</KeyCount><IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b==</NextContinuationToken>\
            <Contents><Key>p/a%20b%2Bc</Key><Size>7</Size></Contents><Contents><Key>p/x</Key><Size>0</Size></Contents>\
            <CommonPrefixes><Prefix>p/n/</Prefix></CommonPrefixes></ListBucketResult>";
        let (listed, next) = page(body).unwrap();
        let object = |key: &str, bytes| Object { key: key.into(), bytes };
        assert_eq!(listed.objects, [object("p/a b+c", 7), object("p/x", 0)]);
        assert_eq!((listed.prefixes, next.unwrap()), (vec!["p/n/".to_owned()], "a&b==".into()));
    }

    #[test]
    fn a_text_may_be_escaped_or_marked_as_literal() {
        assert_eq!(text_of("<Code> a&amp;lt;b </Code>", "Code").unwrap(), "a&lt;b");
        assert_eq!(text_of("<Code><![CDATA[a&lt;b]]></Code>", "Code").unwrap(), "a&lt;b");
    }

    #[test]
    fn what_is_no_list_is_none() {
        let bodies = [
            "",
            "<html>",
            "<ListBucketResult>",
            "<ListBucketResult><Contents><Key>%zz</Key><Size>1</Size></Contents></ListBucketResult>",
            "<ListBucketResult><Contents><Key>k</Key></Contents></ListBucketResult>",
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        ];
        for body in bodies {
            assert_eq!(page(body), None, "{body}");
        }
        assert_eq!(page("<ListBucketResult/>"), Some((Listed::default(), None)));
    }
}
