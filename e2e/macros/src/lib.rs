//! The `#[e2e::test]` attribute.

use proc_macro::TokenStream;
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Ident, ItemFn, LitInt, Token, parse_macro_input};

/// Turns `async fn name(k: Bench)` into a test with a namespace of its own.
///
/// - `#[e2e::test]` runs beside other tests.
/// - `#[e2e::test(exclusive)]` runs alone, and may therefore break nodes.
/// - `#[e2e::test(minutes = 90)]` may take that long instead of ten minutes.
///
/// The function may return nothing or a `Result<(), anyhow::Error>`. What happens around it is told in the crate `e2e`.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let Arguments { exclusive, minutes } = parse_macro_input!(arguments as Arguments);
    let mut body = parse_macro_input!(item as ItemFn);
    if body.sig.asyncness.is_none() || body.sig.inputs.len() != 1 {
        let advice = "an end-to-end test is an `async fn` with one parameter, the `Bench`";
        return quote_spanned! { body.sig.span() => compile_error!(#advice); }.into();
    }
    let attributes = std::mem::take(&mut body.attrs);
    let name = &body.sig.ident;
    let text = name.to_string();
    let company = if exclusive { quote!(Alone) } else { quote!(Shared) };
    quote! {
        #[::core::prelude::v1::test]
        #(#attributes)*
        fn #name() {
            #body
            let company = ::e2e::harness::Company::#company;
            ::e2e::harness::run(::e2e::harness::Case { name: #text, company, minutes: #minutes }, #name);
        }
    }
    .into()
}

struct Arguments {
    exclusive: bool,
    minutes: u64,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut arguments = Self { exclusive: false, minutes: 10 };
        for argument in Punctuated::<Argument, Token![,]>::parse_terminated(input)? {
            match argument {
                Argument::Exclusive => arguments.exclusive = true,
                Argument::Minutes(minutes) => arguments.minutes = minutes,
            }
        }
        Ok(arguments)
    }
}

enum Argument {
    Exclusive,
    Minutes(u64),
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let word: Ident = input.parse()?;
        if word == "exclusive" {
            return Ok(Self::Exclusive);
        }
        if word == "minutes" {
            input.parse::<Token![=]>()?;
            return Ok(Self::Minutes(input.parse::<LitInt>()?.base10_parse()?));
        }
        Err(syn::Error::new(word.span(), "expected `exclusive` or `minutes = …`"))
    }
}
