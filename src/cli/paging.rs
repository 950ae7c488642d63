//! Lists that come page by page, followed to their end or until there are enough rows.

use super::context::Context;
use super::failure::Failure;
use super::request::Request;
use super::value::Value;

/// Most rows of a page.
const PAGE_MAX: u64 = 1000;

/// Where a reply has its rows, and `next` beside them.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The map that holds both; the reply itself if it is empty.
    pub within: &'static str,
    /// The list.
    pub name: &'static str,
}

impl Rows {
    fn page<'a>(&self, reply: Value<'a>) -> Value<'a> {
        if self.within.is_empty() { reply } else { reply.get(self.within) }
    }
}

/// Hands each page to `take` until there are as many rows as are wanted, or no more; answers whether there may be more. Under
/// `--json` each reply is a line.
pub fn follow(
    context: &mut Context,
    rows: Rows,
    most: u64,
    request: impl Fn() -> Request,
    mut take: impl FnMut(Value<'_>),
) -> Result<bool, Failure> {
    let (mut client, mut after, mut left) = (context.client()?, None::<String>, most);
    while left > 0 {
        let limit = left.min(PAGE_MAX);
        let request = request().with(|fields| {
            fields.integer("limit", limit.cast_signed());
            fields.text_if("after", after.as_deref());
        });
        let reply = client.call(request)?;
        context.show(&reply, |_, _| Ok(()))?;
        let page = rows.page(reply.value());
        left = left.saturating_sub(page.get(rows.name).items().count() as u64);
        take(page);
        match page.get("next").text() {
            Some(next) => after = Some(next.to_owned()),
            None => return Ok(false),
        }
    }
    Ok(true)
}
