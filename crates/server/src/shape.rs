//! What an answer is held to, by its format or by the tools that it must call.

use crate::error::ApiError;
use crate::request::{ChatRequest, Format, Input, ToolChoice};

/// Refuses what nothing would enforce.
///
/// # Errors
/// A format, or a call that must be made.
pub(crate) fn check(request: &ChatRequest) -> Result<(), ApiError> {
    if let Input::Chat(chat) = &request.input
        && matches!(chat.tool_choice, ToolChoice::Required | ToolChoice::Named(_))
    {
        let message = "tool_choice `required` and named tools are not supported: the server cannot \
                       force a call; use `auto`";
        return Err(ApiError::refused("unsupported_tool_choice", "tool_choice", message));
    }
    if request.format != Format::Free {
        let message =
            "a format other than text is not supported: nothing would hold the model to it";
        let path = request.format_path;
        return Err(ApiError::refused("unsupported_response_format", path, message));
    }
    Ok(())
}
